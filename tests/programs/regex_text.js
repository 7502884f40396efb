const text = 'On 2024-01-15 paid EUR 12.50, on 2024-02-01 paid EUR 7.25.';
const found = [...text.matchAll(/(?<date>\d{4}-\d{2}-\d{2}) paid EUR (?<sum>\d+\.\d{2})/g)];
const total = found.reduce((sum, match) => sum + Number(match.groups.sum), 0);
console.log(found.map(({ groups }) => groups.date).join(' '), total.toFixed(2));
console.log(new Date(Date.UTC(2024, 1, 29)).toISOString());
