"""A server for tests: POST / takes `--work` seconds; GET / says how many requests run.

It drops what is in flight when it is told to end, as servers that do not drain do, and writes to `--journal` a line
`begun N` when it has accepted a request and `done N` when it has answered, so that none can be lost unseen.
Standard library only.
"""

from __future__ import annotations

import argparse
import os
import signal
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64
    running = 0
    count = 0
    lock = threading.Lock()
    work_s = 0.0
    journal = -1

    def note(self, text: str) -> None:
        if self.journal >= 0:
            os.write(self.journal, f"{text}\n".encode())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        server = self.server
        with server.lock:
            server.running += 1
            server.count += 1
            number = server.count
        server.note(f"begun {number}")
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        time.sleep(server.work_s)
        self._answer(b"answer")
        server.note(f"done {number}")
        with server.lock:
            server.running -= 1

    def do_GET(self) -> None:
        self._answer(str(self.server.running).encode(), close=True)

    def _answer(self, body: bytes, *, close: bool = False) -> None:
        connection = "close" if close else "keep-alive"
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n"
        self.wfile.write(head.encode() + body)
        self.close_connection = self.close_connection or close

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--work", type=float, default=0.0)
    parser.add_argument("--journal")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.deaf else signal.SIG_DFL)
    Server.work_s = options.work
    if options.journal:
        Server.journal = os.open(options.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with Server(("127.0.0.1", options.port), Handler) as server:
        print(f"ready on {server.server_address[1]} with depth {options.depth}", flush=True)
        server.note(f"life {os.getpid()}")
        server.serve_forever()


if __name__ == "__main__":
    main()
