const orders = [
  { customer: 'ann', amount: 10 }, { customer: 'bob', amount: 7 }, { customer: 'ann', amount: 15.5 },
];
const totals = new Map();
for (const { customer, amount } of orders) totals.set(customer, (totals.get(customer) ?? 0) + amount);
console.log([...totals].sort(([, a], [, b]) => b - a));
Object.fromEntries(totals);
