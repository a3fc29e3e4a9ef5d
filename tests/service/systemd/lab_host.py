"""A lab as a `ports.Host`, and a unit in it whose server counts its requests."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.lab.machine import Machine

from draftmark.errors import HostError
from draftmark.ports import Completed

SERVER = Path(__file__).with_name("counting_server.py")


class LabHost:
    """Commands run as `user`, with the environment of a login."""

    def __init__(self, machine: Machine, user: str = "root", environment: Sequence[str] = ()) -> None:
        self._machine = machine
        self._user = user
        self._environment = tuple(environment)

    @property
    def name(self) -> str:
        return "lab"

    @property
    def is_root(self) -> bool:
        return self._user == "root"

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        command = ["env", *self._environment, *argv]
        ended = self._machine.run(command, user=self._user, data=input.decode(), seconds=timeout_s)
        return Completed(ended.status, ended.out.encode(), ended.err, timed_out=ended.status == 124)

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> LabStream:
        return LabStream(self.run(argv, timeout_s=timeout_s))

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        ended = self._machine.run(["cat", path], user=self._user)
        if ended.status != 0:
            raise OSError(ended.err)
        return ended.out.encode()[:limit_bytes]

    def reach(self, address: str, port: int) -> tuple[str, int]:
        return address, port


class FaultyHost(LabHost):
    """A lab that cannot be reached while it is `faulty`."""

    faulty = False

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        if self.faulty:
            raise HostError("the link is down")
        return super().run(argv, input=input, timeout_s=timeout_s, limit_bytes=limit_bytes)


class LabStream:
    """A stream that has ended already."""

    def __init__(self, completed: Completed) -> None:
        self._completed = completed

    def __iter__(self) -> Iterator[bytes]:
        yield self._completed.stdout

    def close(self) -> Completed:
        return self._completed


@dataclass(frozen=True)
class Snapshot:
    """What must be as it was: names, owners and bytes of files, and what systemd makes of them."""

    files: str
    command: str
    active: str
    invocation: str

    def without_state(self) -> Snapshot:
        """Leaving out what a tuning under way notes for itself."""
        lines = [line for line in self.files.splitlines() if "/run/draftmark/" not in line]
        return replace(self, files="\n".join(lines))


class LiveUnit:
    """A unit of the lab's whose server is `counting_server.py`."""

    def __init__(self, machine: Machine, name: str, port: int, command: str) -> None:
        self.machine = machine
        self.name = name
        self.port = port
        self.command = command
        self.host = LabHost(machine)
        self.dropin = f"/run/systemd/system/{name}.d/zz-draftmark.trial.conf"
        self.kept = f"/etc/systemd/system/{name}.d/zz-draftmark.conf"
        self.state = f"/run/draftmark/{name}"

    @property
    def _file(self) -> str:
        stem, at, _ = self.name.partition("@")
        return f"/etc/systemd/system/{stem}@.service" if at else f"/etc/systemd/system/{self.name}"

    def install(self, settings: str, *, active: bool) -> None:
        command = self.command.replace("\\", "\\\\")
        self.machine.write(self._file, f"[Service]\nExecStart={command}\n{settings}\n")
        self.machine.write(f"/etc/systemd/system/{self.name}.d/10 mine.conf", "[Service]\nEnvironment=MINE='a b'\n")
        self.machine.check(["systemctl", "daemon-reload"])
        if active:
            self.machine.check(["systemctl", "start", self.name])
            self.await_depth(0)

    def remove(self) -> None:
        self.machine.run(["systemctl", "kill", "-s", "KILL", self.name])
        self.machine.run(["systemctl", "stop", self.name])
        self.machine.check(["rm", "-rf", self._file, f"/etc/systemd/system/{self.name}.d"])
        self.machine.check(["systemctl", "daemon-reload"])

    def trial(self, depth: int, further: str = "") -> str:
        """The text of a drop-in."""
        command = self.command.replace("--depth 0", f"--depth {depth}")
        return f"# Draftmark\n[Service]\nExecStart=\nExecStart={command}\n{further}"

    def show(self, name: str) -> str:
        return self.machine.check(["systemctl", "show", "--value", "-p", name, self.name]).strip()

    def snapshot(self) -> Snapshot:
        folders = ("/etc/systemd/system", "/run/systemd/system", "/run/draftmark", "/var/lib/draftmark")
        find = 'find "$@" -printf "%y %m %u %p %l\\n" 2>/dev/null | sort; '
        sums = 'find "$@" -type f -exec sha256sum {} + 2>/dev/null | sort; '
        units = 'systemctl list-units --all --plain --no-legend "draftmark*"'
        return Snapshot(
            files=self.machine.check(["sh", "-c", find + sums + units, "x", *folders]),
            command=self.show("ExecStart").partition(" ; start_time=")[0],
            active=self.show("ActiveState"),
            invocation=self.show("InvocationID"),
        )

    def depth(self) -> int | None:
        """That the running server has been started with; None when none runs."""
        words = self.machine.run(["pgrep", "-af", f"^{sys.executable} .*--port {self.port} "]).out.split()
        return int(words[words.index("--depth") + 1]) if words else None

    def await_depth(self, depth: int) -> None:
        """Wait until a server with this depth listens."""
        ready = f"python3 -S -c 'import socket; socket.create_connection((\"127.0.0.1\", {self.port}))' 2>/dev/null"
        self.machine.until(ready, seconds=30)
        assert self.depth() == depth

    def await_restored(self) -> None:
        """Wait until nothing of a tuning is left on the host."""
        self.machine.until(f"test ! -e '{self.state}'", seconds=60)
