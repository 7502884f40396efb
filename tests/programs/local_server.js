const http = require('node:http');
const server = http.createServer((request, response) => {
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ path: request.url }));
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const answer = await fetch(`http://127.0.0.1:${server.address().port}/hello`);
console.log(answer.status, await answer.json());
await new Promise((resolve) => server.close(resolve));
