require('child_process').spawn('/usr/bin/python3', ['/workspace/linger.py'], {
  stdio: ['ignore', 'inherit', 'inherit', 3, 4],
});
setTimeout(() => {}, 100000);
