const os = require('node:os');
const fs = require('node:fs');

const limit = Number(fs.readFileSync('/sys/fs/cgroup/memory.max', 'utf8'));
console.log(os.totalmem() === limit, os.freemem() > 0 && os.freemem() <= limit);
console.log(os.cpus().length, os.availableParallelism(), os.loadavg().length);
console.log(process.constrainedMemory() === limit, process.availableMemory() <= limit);
console.log(os.hostname(), os.platform(), os.uptime() > 0);
