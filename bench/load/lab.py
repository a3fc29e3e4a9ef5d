"""The reference emitter, and clients run against it with an eye on what they cost."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.load.peers import Asked, Peer

LAB = Path(__file__).resolve().parents[2].parent / "shared" / "stream-lab" / "streamlab"
LIMIT_S = 300.0
ORPHAN_S = 10.0
"""So long may a client's processes outlive it."""
DISTURBED = 40
"""Draftmark's exit status where it says itself that its figures are disturbed."""
PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Emitter:
    """A running emitter; its truth is there once it has ended."""

    url: str
    truth_file: Path
    process: subprocess.Popen[str]
    rows: list[dict[str, Any]] = field(default_factory=list)

    def stop(self) -> None:
        """End it; the truth is then written."""
        self.process.terminate()
        self.process.wait(30)

    @property
    def tokens(self) -> int:
        """All that it sent."""
        return sum(row["tokens"] for row in self.rows)


@contextmanager
def emitter(schedule: dict[str, Any]) -> Iterator[Emitter]:
    """Serve a schedule until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        plan, truth = Path(folder) / "schedule.json", Path(folder) / "truth.jsonl"
        plan.write_text(json.dumps(schedule))
        command = [sys.executable, str(LAB), "serve", "--schedule", str(plan), "--truth", str(truth)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            running = Emitter(f"http://127.0.0.1:{process.stdout.readline().split()[1]}", truth, process)
            try:
                yield running
            finally:
                running.stop()
            running.rows = [json.loads(line) for line in truth.read_text().splitlines()]
            running.rows = [row for row in running.rows if "summary" not in row]


@dataclass(frozen=True)
class Ran:
    """What a client printed, and what it cost.

    Attributes:
        cpu_s: User and system time of its process and of all that it began.
        wall_s: From its start to its end.
        most_bytes: The most memory that it and its children held at once (`watched` only).
    """

    status: int
    stdout: str
    stderr: str
    cpu_s: float
    wall_s: float
    most_bytes: int = 0


def ran(
    command: Sequence[str], *, watched: bool = False, folder: Path | None = None, env: dict[str, str] | None = None
) -> Ran:
    """Run a client to its end, with all the processes that it began; after `LIMIT_S` they are killed."""
    libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        before = _children(os.getpid())
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder, env=env, start_new_session=True)
        limit = threading.Timer(LIMIT_S, _kill, (process.pid,))
        limit.start()
        try:
            usage, most = _waited(process, watched=watched)
            wall_s = time.perf_counter() - begin
            cpu_s = usage.ru_utime + usage.ru_stime + _orphans_cpu_s(before)
        finally:
            limit.cancel()
            _kill(process.pid)
        out.seek(0)
        err.seek(0)
        return Ran(
            process.returncode,
            out.read().decode("utf-8", "replace"),
            err.read().decode("utf-8", "replace"),
            cpu_s,
            wall_s,
            most,
        )


def _waited(process: subprocess.Popen[bytes], *, watched: bool) -> tuple[resource.struct_rusage, int]:
    """What it used, and the most memory, once it has ended."""
    most = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG if watched else 0)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage, most
        most = max(most, _tree_bytes(process.pid))
        time.sleep(0.05)


def _orphans_cpu_s(before: set[int]) -> float:
    """CPU of processes that the client left behind: it did not wait for them, so its own time lacks theirs."""
    spent = 0.0
    deadline = time.monotonic() + ORPHAN_S
    while left := _children(os.getpid()) - before:
        for pid in left:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            ended, _, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                spent += usage.ru_utime + usage.ru_stime
        time.sleep(0.02)
    return spent


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _children(pid: int) -> set[int]:
    """Of all its threads; none if it has gone."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found |= {int(child) for child in (thread / "children").read_text().split()}
    return found


def _tree_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(_tree_bytes, _children(pid)))


@cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _tokenizer() -> tempfile.TemporaryDirectory[str]:
    """A tokenizer whose words are the emitter's; gone when this process ends."""
    folder = tempfile.TemporaryDirectory()
    subprocess.run([sys.executable, str(LAB), "tokenizer", folder.name], check=True, capture_output=True)
    return folder


class UnmeasuredError(Exception):
    """Why there is no figure, in one line."""


@dataclass(frozen=True)
class Measured:
    """A peer's run against a schedule.

    Attributes:
        rows: What the emitter saw, a request each, warm-up included.
        compared: By figure (the truth, the peer's), where that was asked for.
    """

    cost: Ran
    rows: list[dict[str, Any]]
    compared: dict[str, tuple[float, float]]

    @property
    def tokens(self) -> int:
        """All that the peer was sent."""
        return sum(row["tokens"] for row in self.rows)


def measured(
    peer: Peer, schedule: dict[str, Any], asked: Asked, venvs: Path | None, *, compared: bool = False
) -> Measured:
    """Run it; `asked` lacks the URL and the folder.

    Raises:
        UnmeasuredError: It is not installed, or did not do what it was asked.
    """
    schedule = {**schedule, "warmup": peer.warmup(asked.concurrency)}
    with tempfile.TemporaryDirectory() as scratch, emitter(schedule) as server:
        folder = Path(scratch)
        shutil.copytree(_tokenizer().name, folder / "tokenizer")
        words = peer.command(replace(asked, url=server.url, folder=folder))
        program, env = _program(peer, words[0], venvs)
        cost = ran([program, *words[1:]], folder=folder, env=env)
        if cost.status not in (0, DISTURBED):
            said = (cost.stderr.strip() or cost.stdout.strip() or "nothing said").splitlines()[-1]
            raise UnmeasuredError(f"{peer.name} ended with {cost.status}: {said[:200]}")
        rows = {}
        if compared:
            try:
                figures = peer.figures(cost.stdout, folder)
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise UnmeasuredError(f"{peer.name} left no figures: {error!r}"[:240]) from error
            if figures["requests"]["completed"] != asked.requests:
                raise UnmeasuredError(f"{peer.name} completed {figures['requests']} of {asked.requests} requests")
            server.stop()
            rows = {row["figure"]: (row["truth"], row["client"]) for row in _compared(server, figures)}
    return Measured(cost, server.rows, rows)


def _compared(server: Emitter, figures: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scored(server.truth_file, figures)["comparison"]
    return found


def _program(peer: Peer, word: str, venvs: Path | None) -> tuple[str, dict[str, str] | None]:
    """Where a peer's program is, and the environment for it: our own modules are none of another tool's."""
    if "/" in word:
        return word, None
    program = shutil.which(word) if venvs is None else str(venvs / peer.name / "bin" / word)
    if program is None or not os.access(program, os.X_OK):
        raise UnmeasuredError(f"{peer.name} is not installed: no {program or word}; `bench.load peers` says how")
    path = f"{Path(program).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return program, {name: v for name, v in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}


def version(peer: Peer, venvs: Path | None) -> str:
    """What is installed of a peer; "-" where that cannot be told."""
    if venvs is None:
        return "-"
    asked = f"import importlib.metadata as m; print(m.version({peer.name!r}))"
    python = str(venvs / peer.name / "bin" / "python")
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    return "-"


def scored(truth: Path, result: dict[str, Any], *options: str) -> dict[str, Any]:
    """The emitter's own judgement of a client's figures."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(result))
        file.flush()
        command = [
            sys.executable,
            str(LAB),
            "score",
            "--truth",
            str(truth),
            "--result",
            file.name,
            "--json",
            *options,
        ]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    judged: dict[str, Any] = json.loads(told)
    return judged
