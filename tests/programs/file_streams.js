const fs = require('node:fs');
const readline = require('node:readline');
const { createHash } = require('node:crypto');

fs.writeFileSync('data.csv', 'name,age\nann,31\nbob,27\n');
const ages = [];
for await (const line of readline.createInterface({ input: fs.createReadStream('data.csv') })) {
  const age = Number(line.split(',')[1]);
  if (!Number.isNaN(age)) ages.push(age);
}
fs.writeFileSync('out.json', JSON.stringify({ mean: ages.reduce((a, b) => a + b) / ages.length }));
console.log(fs.readFileSync('out.json', 'utf8'));
console.log(createHash('sha256').update('abc').digest('hex').slice(0, 8));
