import io

import pandas as pd

people = pd.read_csv(io.StringIO("id,name,age\n1,Ann,31\n2,Bob,\n3,,27\n3,,27\n"))
cities = pd.DataFrame({"id": [1, 2, 4], "city": ["Oslo", "Rome", "Bern"]})
people = people.drop_duplicates().fillna({"name": "unknown", "age": people["age"].median()})
merged = people.merge(cities, on="id", how="outer", indicator=True)
print(merged["_merge"].value_counts().sort_index().to_dict())
print(merged[["id", "name", "city"]].to_dict("records")[2])
