"""Servers of HTTP, HTTPS and git on the addresses of web.example, in a fake Internet.

Argument: the directory with leaf.pem and leaf.key, where repositories are made.
"""

import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading

HOME = sys.argv[1]
ADDRESSES = [(socket.AF_INET, "93.184.0.10"), (socket.AF_INET6, "2600:1234::10"), (socket.AF_INET, "10.0.0.5"), (socket.AF_INET, "169.254.169.254")]
IP_FREEBIND = 15


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if "X-Api-Key" in self.headers:
            with open(f"{HOME}/keys", "a") as log:
                log.write(f"{self.headers['Host']} {self.headers.get_all('X-Api-Key')}\n")
        if self.path.startswith("/git/"):
            return self.git()
        if self.path.startswith("/to-other"):
            self.send_response(302)
            self.send_header("Location", "http://other.example/secret")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = int(self.path.rpartition("size=")[2] or 0) if "size=" in self.path else 0
        family = "six" if ":" in self.connection.getsockname()[0] else "four"
        body = b"x" * size or f"hello {self.headers.get('Host')} {family}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        if self.path.startswith("/git/"):
            return self.git()
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        body = f"took {length}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def git(self):
        path, _, query = self.path[len("/git"):].partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": HOME,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "CONTENT_LENGTH": str(len(body)),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        # Not the base's, which looks its own name up.
        self.socket.bind(self.server_address)

    def handle_error(self, *_):
        pass


class TlsServer(Server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def finish_request(self, request, client):
        # In the connection's own thread: a handshake must not keep others waiting.
        with self.context.wrap_socket(request, server_side=True) as tls:
            super().finish_request(tls, client)


TlsServer.context.load_cert_chain(f"{HOME}/leaf.pem", f"{HOME}/leaf.key")
for family, address in ADDRESSES:
    for kind, port in [(Server, 80), (TlsServer, 443), (Server, 8080)]:
        kind.address_family = family
        server = kind((address, port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
# Until the test has ended in any way.
sys.stdin.read()
