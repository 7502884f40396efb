import sqlite3

with sqlite3.connect("shop.db") as db:
    db.executescript("""
        create table customer(id integer primary key, name text);
        create table orders(customer integer references customer(id), amount real);
        insert into customer(name) values ('Ann'), ('Bob');
        insert into orders values (1, 10), (1, 15.5), (2, 7);
    """)
    rows = db.execute("""
        select name, count(*) as n, sum(amount) as total,
               rank() over (order by sum(amount) desc) as place
        from customer join orders on customer.id = orders.customer
        group by name order by place
    """).fetchall()
for row in rows:
    print(*row, sep="\t")
