"""The reference emitter, and clients run against it with an eye on what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAB = Path(__file__).resolve().parents[2].parent / "shared" / "stream-lab" / "streamlab"
LIMIT_S = 300.0


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
        cpu_s: User and system time of its process and of those that it waited for.
        wall_s: From its start to its end.
        most_bytes: The most memory that it and its children held at once (`watched` only).
    """

    status: int
    stdout: str
    stderr: str
    cpu_s: float
    wall_s: float
    most_bytes: int = 0


def ran(command: Sequence[str], *, watched: bool = False) -> Ran:
    """Run a client to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err)
        most = 0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG if watched else 0)
            if pid:
                break
            most = max(most, _tree_bytes(process.pid))
            time.sleep(0.05)
        wall_s = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Ran(
            process.returncode,
            out.read().decode("utf-8", "replace"),
            err.read().decode("utf-8", "replace"),
            usage.ru_utime + usage.ru_stime,
            wall_s,
            most,
        )


def _tree_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_tree_bytes(int(child)) for child in children)


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
