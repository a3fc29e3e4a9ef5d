"""What is sent to a node: starts the Draftmark that is there, hands on what it says, and ends it.

Shipped by value, so that nothing need be there for it: the standard library alone. One agent is one Ray actor,
which holds the node's resources for as long as it lives. Whatever ends it ends the trial: the trial's stdin closes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

_PUT_IN_BY_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")
_STOP_S = 30.0
_LOOK_S = 0.5
# Ray kills the children of a worker that ends, at once: an orphan in a session of its own has the time to clean up.
_ORPHAN = """
import os, sys
pid = os.fork()
if pid:
    os.write(1, b"%d\\n" % pid)
    os._exit(0)
os.setsid()
os.execv(sys.argv[1], sys.argv[1:])
"""


class Agent:
    """One node's hands. Methods may be called from several threads.

    Args:
        silence_s: Not asked for so long, it ends what it runs: whoever started it cannot be reached, or it cannot.
        gpus: Reserved here; the environment then names them.
    """

    def __init__(self, silence_s: float, gpus: int) -> None:
        self._silence_s = silence_s
        self._gpus = gpus
        self._lines: list[bytes] = []
        self._said = threading.Condition()
        self._ending = threading.Lock()
        self._stdin: IO[bytes] | None = None
        self._pidfd: int | None = None
        self._directory: str | None = None
        self._over = True  # nothing runs
        self._asked = time.monotonic()
        self._raylet = os.getppid()
        threading.Thread(target=self._mind, daemon=True).start()

    def look(self, question: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Exit status, stdout and the end of stderr of the Draftmark here, asked about a service."""
        try:
            done = subprocess.run(
                self._words(), input=question, capture_output=True, env=self._env(), timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return -1, b"", b"no answer in time"
        return done.returncode, done.stdout, done.stderr[-2000:]

    def begin(self, question: bytes) -> None:
        """Start a trial."""
        self.discard()
        self._directory = tempfile.mkdtemp(prefix="draftmark-trial-")
        self._lines, self._over, self._asked = [], False, time.monotonic()
        with (Path(self._directory) / "draftmark.log").open("wb") as log:
            launcher = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _ORPHAN, *self._words(), self._directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env(),
            )
        assert launcher.stdin is not None  # noqa: S101 - as asked for
        assert launcher.stdout is not None  # noqa: S101 - likewise
        self._pidfd = os.pidfd_open(int(launcher.stdout.readline()))
        launcher.wait()
        self._stdin = launcher.stdin
        threading.Thread(target=self._read, args=(launcher.stdout,), daemon=True).start()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(question)
            self._stdin.flush()

    def poll(self, after: int, wait_s: float) -> tuple[list[bytes], bool]:
        """What it has said behind so many lines, and whether that is all: a lost answer can be asked for again."""
        self._asked = time.monotonic()
        with self._said:
            if len(self._lines) <= after and not self._over:
                self._said.wait(wait_s)
            return self._lines[after:], self._over

    def files(self) -> list[tuple[str, int]]:
        """Names and sizes of what the trial has left."""
        if self._directory is None:
            return []
        return [(path.name, path.stat().st_size) for path in Path(self._directory).iterdir() if path.is_file()]

    def read(self, name: str, offset: int, size: int) -> bytes:
        """A part of one of them."""
        self._asked = time.monotonic()
        assert self._directory is not None  # noqa: S101 - it was listed
        with (Path(self._directory) / name).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def discard(self) -> None:
        """End what runs, if anything does, and remove its files."""
        with self._ending:
            self._discard()

    def _discard(self) -> None:
        directory = self._directory
        self._hang_up()
        if self._pidfd is not None:
            with self._said:
                if not self._said.wait_for(lambda: self._over, _STOP_S):
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)  # its guard ends the server
                    self._said.wait_for(lambda: self._over, _STOP_S)
            os.close(self._pidfd)
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        self._pidfd = self._directory = None

    def _hang_up(self) -> None:
        """The end of its stdin is a trial's sign to stop its server, and end."""
        stdin, self._stdin = self._stdin, None
        if stdin is not None:
            with contextlib.suppress(OSError):
                stdin.close()

    def _words(self) -> list[str]:
        return [sys.executable, "-P", "-m", "draftmark", "trial"]

    def _env(self) -> dict[str, str]:
        """The node's own environment, as its raylet has it: a worker's has what Ray put in."""
        try:
            data = Path(f"/proc/{os.environ['RAY_RAYLET_PID']}/environ").read_bytes()
            pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
            found = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        except (KeyError, OSError):
            found = {name: value for name, value in os.environ.items() if name not in _PUT_IN_BY_RAY}
        if self._gpus and "CUDA_VISIBLE_DEVICES" in os.environ:
            found["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
        return found

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                with self._said:
                    self._lines.append(line)
                    self._said.notify_all()
        with self._said:
            self._over = True
            self._said.notify_all()

    def _mind(self) -> None:
        """A node that the cluster has lost runs nothing more: not by a dead raylet, not by a dead network."""
        while True:
            time.sleep(_LOOK_S)
            orphaned = os.getppid() != self._raylet
            if orphaned or (not self._over and time.monotonic() - self._asked > self._silence_s):
                self.discard()
            if orphaned:
                os._exit(1)
