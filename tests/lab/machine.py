"""A booted lab, as tests use it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from . import cgroups
from .packages import Layer, UnavailableError, layer
from .root import CHECKOUT, TARGET

BOOT_SECONDS = 120.0
COMMAND_SECONDS = 120.0
MEMORY_MIB = 256


class Mode(StrEnum):
    """Whose kernel it is."""

    SHARED = "ns"  # namespaces of this machine's kernel: fast; cgroups, kernel log and memory are this machine's
    OWN = "uml"  # a kernel of its own, as a process: slow; cgroup v2, own kernel log, own memory


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command in the lab said."""

    status: int
    out: str
    err: str


class Machine:
    """One lab, from `boot` to `close`; whatever happens to this process, the lab does not outlive it."""

    def __init__(
        self, mode: Mode, holder: subprocess.Popen[bytes], console: IO[bytes], serial: Serial | None
    ) -> None:
        self.mode = mode
        self._holder = holder
        self._console = console
        self._serial = serial
        self._init = 0

    @classmethod
    def boot(cls, mode: Mode) -> Machine:
        """A machine on which systemd has started.

        Raises:
            UnavailableError: It cannot be had here.
        """
        _check_host()
        packages = layer() if mode is Mode.OWN else None
        if mode is Mode.SHARED:
            cgroups.remove_stale()
            cgroups.plan("")
        machine = cls._hold(mode, packages)
        try:
            machine._await_boot()
        except BaseException:
            machine.close()
            raise
        return machine

    @classmethod
    def _hold(cls, mode: Mode, packages: Layer | None, mounts: int | None = None) -> Machine:
        console = tempfile.TemporaryFile()  # noqa: SIM115 - the machine closes it
        serial = Serial() if packages is not None else None
        options = {
            "name": mode.value,
            "kernel": str(packages.kernel) if packages else None,
            "layer": str(packages.files) if packages else None,
            "memory_mib": MEMORY_MIB,
            "serial": serial.inside if serial else (),
            "mounts": mounts,
        }
        holder = subprocess.Popen(
            [sys.executable, "-B", "-m", "tests.lab.boot", json.dumps(options)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=console,
            pass_fds=serial.inside if serial else () if mounts is None else (mounts,),
            start_new_session=True,
        )
        if serial is not None:
            serial.opened()
        return cls(mode, holder, console, serial)

    def _await_boot(self) -> None:
        assert self._holder.stdout is not None
        deadline = time.monotonic() + BOOT_SECONDS
        told = self._holder.stdout.readline()
        if not told:
            raise UnavailableError(f"no lab can be started here: {self.console_tail()}")
        self._init = json.loads(told)["init"]
        while time.monotonic() < deadline:
            if select.select([self._holder.stdout], [], [], 0)[0]:
                raise UnavailableError(f"no lab can be started here: {self.console_tail()}")
            if self._serial is not None:
                if self._serial.wait_hello(0.2):
                    return
            elif self.run(["systemctl", "is-active", "--quiet", TARGET]).status == 0:
                return
            else:
                time.sleep(0.05)
        raise UnavailableError(f"the lab has not booted within {BOOT_SECONDS:.0f} s: {self.console_tail()}")

    def reboot(self) -> None:
        """Cut the power of a lab that shares this machine's kernel, and boot it again with the same disks."""
        mounts = os.open(f"/proc/{self._init}/ns/mnt", os.O_RDONLY)
        try:
            self.close()
            again = self._hold(self.mode, None, mounts)
            self._holder, self._console = again._holder, again._console
            self._await_boot()
        finally:
            os.close(mounts)

    @property
    def cgroups(self) -> cgroups.Version:
        """Version of the lab's control groups."""
        return cgroups.Version.V2 if self.mode is Mode.OWN else cgroups.version()

    def run(
        self,
        command: Sequence[str | Path],
        *,
        user: str = "root",
        data: str = "",
        seconds: float = COMMAND_SECONDS,
    ) -> Ended:
        """Run a command inside; its own exit status, 124 when it took too long."""
        inside = _as(user, command)
        if self._serial is not None:
            return self._serial.run(inside, data, seconds)
        try:
            ended = subprocess.run(
                self.inside(command, user=user),
                input=data.encode(),
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return Ended(124, (late.stdout or b"").decode(), (late.stderr or b"").decode())
        return Ended(ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))

    def inside(self, command: Sequence[str | Path], *, user: str = "root") -> list[str]:
        """The command line, on this machine, that runs `command` in a lab that shares its kernel."""
        nsenter = ["nsenter", "-t", str(self._init), "-m", "-u", "-i", "-p", "-C", "--root", "--wd=/", "--"]
        return [*nsenter, *_as(user, command)]

    def check(self, command: Sequence[str | Path], **options: Any) -> str:
        """As `run`, for a command that must succeed; what it printed."""
        ended = self.run(command, **options)
        assert ended.status == 0, f"{command}: exit status {ended.status}\n{ended.out}{ended.err}"
        return ended.out

    def write(self, path: str, text: str) -> None:
        """Put a file there."""
        self.check(["sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path], data=text)

    def show(self, unit: str) -> dict[str, str]:
        """All properties of a unit."""
        lines = self.check(["systemctl", "show", unit]).splitlines()
        return {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}

    def until(self, condition: str, *, seconds: float = 90.0) -> None:
        """Wait for a shell condition inside.

        Raises:
            AssertionError: It has not come true in time.
        """
        loop = f"until {condition}; do sleep 0.1; done"
        ended = self.run(["sh", "-c", loop], seconds=seconds)
        assert ended.status == 0, f"waited {seconds:.0f} s in vain: {condition}\n{ended.err}"

    def journal(self, *arguments: str) -> list[dict[str, Any]]:
        """Entries, as journalctl tells them."""
        lines = self.check(["journalctl", "-q", "-o", "json", "--no-pager", *arguments]).splitlines()
        return [json.loads(line) for line in lines]

    def console_tail(self) -> str:
        """The end of what the lab said while booting."""
        size = os.fstat(self._console.fileno()).st_size
        text = os.pread(self._console.fileno(), 2000, max(0, size - 2000)).decode(errors="replace")
        return " | ".join(text.split("\n")[-8:]).strip(" |") or "it said nothing"

    @property
    def first_process(self) -> int:
        """PID, on this machine, of the lab's first process."""
        return self._init

    def close(self) -> None:
        """End it. Twice does no harm."""
        for stream in (self._holder.stdin, self._holder.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._holder.wait(20)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        if self._serial is not None:
            self._serial.close()
        self._console.close()


class Serial:
    """The line to the agent in a lab with its own kernel."""

    def __init__(self) -> None:
        down, up = os.pipe(), os.pipe()
        self.inside = (down[0], up[1])
        self._requests, self._answers = down[1], up[0]
        self._hello = threading.Event()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._last = 0

    def opened(self) -> None:
        """The lab has its ends now: close ours, and listen."""
        for descriptor in self.inside:
            os.close(descriptor)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with os.fdopen(self._answers, "rb") as answers:
            for line in answers:
                with contextlib.suppress(ValueError):  # noise before the agent has the line
                    answer = json.loads(line)
                    if answer["id"] == 0:
                        self._hello.set()
                    else:
                        self._waiting.pop(answer["id"]).set_result(answer)
        for future in list(self._waiting.values()):
            future.set_exception(ConnectionError("the lab's kernel ended"))

    def wait_hello(self, seconds: float) -> bool:
        """Whether the agent has said that it is there."""
        return self._hello.wait(seconds)

    def run(self, command: Sequence[str], data: str, seconds: float) -> Ended:
        """As `Machine.run`."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            self._last += 1
            number = self._last
            self._waiting[number] = future
            request = {"id": number, "argv": list(command), "timeout": seconds}
            request["input"] = base64.b64encode(data.encode()).decode()
            left = json.dumps(request).encode() + b"\n"
            while left:
                left = left[os.write(self._requests, left) :]
        try:
            answer = future.result(seconds + 30)
        except NotInTimeError:
            return Ended(124, "", "the lab does not answer")
        out, err = (base64.b64decode(answer[key]).decode(errors="replace") for key in ("out", "err"))
        return Ended(answer["status"], out, err)

    def close(self) -> None:
        """Let go of the line."""
        with contextlib.suppress(OSError):
            os.close(self._requests)


def _as(user: str, command: Sequence[str | Path]) -> list[str]:
    home = "/root" if user == "root" else f"/home/{user}"
    words = ["/usr/bin/env", "-i", "-C", home, f"HOME={home}", f"USER={user}", "LANG=C.UTF-8", "TERM=dumb"]
    words.append("PATH=/usr/sbin:/usr/bin:/sbin:/bin")
    if user != "root":
        words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
    return words + list(map(str, command))


def _check_host() -> None:
    if not sys.platform.startswith("linux"):
        raise UnavailableError("a lab needs Linux")
    if os.geteuid() != 0:
        raise UnavailableError("a lab needs root, for its namespaces and its overlay of /")
    for program in ("nsenter", "setpriv"):
        if shutil.which(program) is None:
            raise UnavailableError(f"a lab needs {program}, of util-linux")
