import http.server
import json
import threading
import urllib.request


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"sum": sum(body["numbers"])}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
request = urllib.request.Request(
    f"http://127.0.0.1:{server.server_port}/", data=json.dumps({"numbers": [1, 2, 3]}).encode())
with urllib.request.urlopen(request, timeout=100) as answer:
    print(answer.status, json.load(answer))
server.shutdown()
