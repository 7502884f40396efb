const { Worker } = require('node:worker_threads');

const source = `
const { parentPort, workerData } = require('node:worker_threads');
let sum = 0;
for (let n = workerData.from; n < workerData.to; n++) sum += n;
parentPort.postMessage(sum);`;
const part = (from, to) => new Promise((resolve, reject) => {
  const worker = new Worker(source, { eval: true, workerData: { from, to } });
  worker.once('message', resolve);
  worker.once('error', reject);
});
const sums = await Promise.all([part(0, 1000), part(1000, 2000)]);
console.log(sums, sums.reduce((a, b) => a + b));
