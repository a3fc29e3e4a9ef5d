"""A real simulated server in a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from draftmark.testing.processes import popen

_PATIENCE_S = 60.0
READY = "ready to roll!"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Server:
    """One of them, and what it wrote so far."""

    process: subprocess.Popen[str]
    port: int
    path: Path
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def await_line(self, part: str) -> None:
        """Read on until a line has this part."""
        assert self.process.stderr is not None
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            line = self.process.stderr.readline()
            if not line:
                raise AssertionError(f"no {part!r} in: {self.log[-2000:]}")
            self.lines.append(line)
            if part in line:
                return
        raise AssertionError(f"no {part!r} within {_PATIENCE_S} s")

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def lines_of_log(self) -> list[str]:
        """All that was read."""
        return self.log.splitlines(keepends=True)

    def ended(self) -> int:
        """Its exit status, once it has ended by itself; negative for a signal."""
        _, rest = self.process.communicate(timeout=_PATIENCE_S)
        self.lines.append(rest)
        return self.process.returncode

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def call(
        self, path: str, body: object | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def json(self, path: str, body: object | None = None) -> Any:
        status, data = self.call(path, body)
        assert status == 200, data
        return json.loads(data)


Starter = Callable[..., Server]
FAST = ("--speed", "2000", "--serve-speed", "2000")


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Starter]:
    """Starts one: own options, then `flags=` of SGLang; waits until it is ready, unless told `until=`."""
    running: list[Server] = []

    def start(
        *words: str, flags: tuple[str, ...] = (), until: str | None = READY, port: int | None = None
    ) -> Server:
        port = port or free_port()
        speed = () if "--speed" in words else FAST
        process = popen(("sim", *speed, *words, "--", *flags, "--port", str(port)), tmp_path)
        server = Server(process, port, tmp_path)
        running.append(server)
        if until is not None:
            server.await_line(until)
        return server

    yield start
    for server in running:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


def drafting(steps: int, method: str = "NEXTN") -> tuple[str, ...]:
    """Flags of a chain so many steps deep; none for 0."""
    if not steps:
        return ()
    return (
        "--speculative-algorithm", method, "--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", str(steps + 1),
    )  # fmt: skip
