#!/usr/bin/env python3
"""Has the service run code: ask.py [SOCKET] < CODE. Prints the record."""

import json
import socket
import sys


def ask(request, path="/run/cellblock/socket"):
    """The record of `request`, a spec as in cellblock-policy(5)."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answer:
            return json.load(answer)


if __name__ == "__main__":
    request = {"language": "python", "code": sys.stdin.read(), "limits": {"wall": "10s"}}
    json.dump(ask(request, *sys.argv[1:2]), sys.stdout, indent=2)
    print()
