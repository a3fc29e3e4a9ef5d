"""What the live tests and `python -m bench.cluster` share: a cluster, a simulated service, a look for leftovers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_FLAGS = (
    "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4 --port 32510"
)


@dataclass
class Raylets:
    """A running cluster.

    Attributes:
        address: For `--cluster`.
        nodes: Ids, in the order of their paces.
        scratch: Where everything of this cluster is.
    """

    address: str
    nodes: list[str]
    scratch: Path
    process: subprocess.Popen[bytes]

    def kill(self, number: int) -> None:
        """A raylet, by SIGKILL."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"kill {number}\n".encode())
        self.process.stdin.flush()
        self.process.stdout.readline()

    def name(self, number: int) -> str:
        """As Draftmark calls a node: by the id, since all have this computer's name."""
        return f"{os.uname().nodename}-{self.nodes[number][:6]}"

    @property
    def program(self) -> Path:
        """`draftmark` at the pace of the node that it is started on."""
        return self.scratch / "draftmark"

    def service(self, *, speed: float = 100.0, flags: str = _FLAGS) -> str:
        """A reference to a simulated server that starts that many times faster than a real one."""
        words = f"{shlex.quote(str(self.program))} sim --model qwen35-35b --gpus h200 --speed {speed:g}"
        return f"cmd:{words} -- {flags}"

    def left(self) -> list[str]:
        """Whatever a run has left on the nodes: processes by their command line, and directories."""
        found = [str(path) for path in self.scratch.glob("tmp/draftmark-[ct]*")]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            simulated = "sim --model qwen35-35b" in words and "--port 325" in words and " tune " not in words
            if simulated or ("draftmark trial " in words and str(self.scratch) in words):
                found.append(words)
        return found


def environment(scratch: Path) -> dict[str, str]:
    """For the raylets and for Draftmark: this checkout's sources, temporary files of our own."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(scratch / "tmp"), "COLUMNS": "200"}


@contextmanager
def raylets(scratch: Path, paces: Sequence[float], *, head: float | None = None) -> Iterator[Raylets]:
    """A cluster with a node for each pace: simulated servers there serve so many times faster than is simulated.

    Args:
        scratch: For everything of this cluster.
        paces: Of the nodes that can be killed.
        head: Pace of the head, as the last of the nodes; None for a head that runs nothing.
    """
    program = scratch / "draftmark"
    program.write_text(
        f"#!/bin/sh\nverb=$1\nshift\nexec {shlex.quote(sys.executable)} -m draftmark "
        '"$verb" --serve-speed "$PACE" "$@"\n'
    )
    program.chmod(0o755)
    (scratch / "tmp").mkdir(exist_ok=True)
    ray_files = tempfile.mkdtemp(prefix="dm-ray-", dir="/tmp")  # its sockets have no room in a longer path
    with (scratch / "raylets.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("raylets.py")),
                str(scratch / "tmp"),
                "-" if head is None else str(head),
                *map(str, paces),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_TMPDIR": ray_files},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError((scratch / "raylets.log").read_text(errors="replace")[-3000:])
        up: dict[str, Any] = json.loads(line)
        yield Raylets(up["address"], up["nodes"], scratch, process)
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(ray_files, ignore_errors=True)


def draftmark(cluster: Raylets, *words: str) -> subprocess.Popen[str]:
    """Draftmark, started; its stdout and stderr are pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "draftmark", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(cluster.scratch),
        cwd=cluster.scratch,
    )
