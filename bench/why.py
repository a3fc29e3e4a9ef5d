"""How long `draftmark why` takes over a 1 GB log, beside grep on the same file, in one run; and over a short one.

    python bench/why.py [RUNS] [GIGABYTES]

Three logs are made in a temporary folder, which is removed: ordinary traffic with one traceback at 60 %, the same
with a decisive word in every line (a flood), and 70 lines. grep and why alternate, so that noise troubles both.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATTERN = "oom|SIGKILL|[Kk]illed|memory"
FLOOD = " CUDA out of memory. Tried to allocate 2.00 GiB"
TRACEBACK = """\
[{stamp} TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/venv/lib/sglang/srt/managers/scheduler.py", line 2600, in run_scheduler_process
    scheduler.event_loop_overlap()
  File "/opt/venv/lib/sglang/srt/managers/scheduler.py", line 1120, in event_loop_overlap
    result = self.run_batch(batch)
  File "/opt/venv/lib/sglang/srt/layers/logits_processor.py", line 311, in forward
    logits = torch.empty(shape, dtype=torch.float32, device=hidden.device)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.90 GiB. GPU 0 has a total capacity of 79.11 GiB

[{stamp}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""


@dataclass(frozen=True)
class Taken:
    """What one command needed."""

    seconds: float
    cpu_s: float
    peak_mib: float
    status: int


def run(words: list[str]) -> Taken:
    """One command, its output into a file: grep stops at the first match when that is the null device."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        child = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, "LC_ALL": "C"})
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    return Taken(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, child.returncode)


def stamp(second: int) -> str:
    return f"2026-03-{2 + second // 86400 % 27:02} {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"


def traffic(draw: random.Random, count: int, start: int) -> Iterator[str]:
    """Lines as SGLang writes them while it serves."""
    for n in range(start, start + count):
        at, kind = stamp(n // 6), draw.random()
        if kind < 0.5:
            yield (
                f"[{at} TP0] Decode batch, #running-req: {draw.randint(1, 48)}, #token: {draw.randint(1, 99999)}, "
                f"token usage: {draw.random():.2f}, accept len: {1 + 3 * draw.random():.2f}, cuda graph: True, "
                f"gen throughput (token/s): {draw.random() * 3000:.2f}, #queue-req: {draw.randint(0, 3)}, "
            )
        elif kind < 0.75:
            yield (
                f"[{at} TP0] Prefill batch, #new-seq: 1, #new-token: {draw.randint(1, 8192)}, #cached-token: "
                f"{draw.randint(0, 4096)}, token usage: {draw.random():.2f}, #running-req: 3, #queue-req: 0, "
            )
        else:
            address = f"10.20.{draw.randint(0, 255)}.{draw.randint(1, 254)}:{draw.randint(1024, 65535)}"
            yield f'[{at}] INFO:     {address} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def write(path: Path, size: int, every_line: str = "") -> None:
    draw = random.Random(7)
    written, lines, told = 0, 0, False
    with path.open("w") as file:
        while written < size:
            if not told and written >= 0.6 * size:
                file.write(TRACEBACK.format(stamp=stamp(lines // 6)))
                told = True
            written += file.write("".join(f"{line}{every_line}\n" for line in traffic(draw, 50_000, lines)))
            lines += 50_000


def command(path: Path) -> list[str]:
    """The verb; where it does not run, the reading alone."""
    verb = [sys.executable, "-m", "draftmark", "why", str(path), "--json"]
    short = path.with_name("short.log")
    if run([*verb[:4], str(short), "--json"]).status in (0, 40):
        return verb
    code = (
        "import sys; from draftmark.postmortem.intake import *; read_paths(sys.argv[1:], hints=Hints(('Killed',)))"
    )
    return [sys.executable, "-c", code, str(path)]


def compare(name: str, path: Path, runs: int) -> None:
    grep = ["grep", "-c", "-E", PATTERN, str(path)]
    why = command(path)
    run(grep)  # the file into the page cache
    pairs = [(run(why), run(grep)) for _ in range(runs)]
    ratio = statistics.median(a.seconds / b.seconds for a, b in pairs)
    cpu = statistics.median(a.cpu_s / b.cpu_s for a, b in pairs)
    ours = statistics.median(a.seconds for a, _ in pairs)
    theirs = statistics.median(b.seconds for _, b in pairs)
    print(
        f"{name:8} why {ours:6.2f} s  grep {theirs:6.2f} s  ratio {ratio:5.2f}  (processor time {cpu:5.2f})  ",
        end="",
    )
    print(f"peak {max(a.peak_mib for a, _ in pairs):5.0f} MiB  exit {pairs[0][0].status}")


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    size = int(float(sys.argv[2]) * 1e9) if len(sys.argv) > 2 else 1_000_000_000
    with tempfile.TemporaryDirectory(prefix="draftmark-bench-") as folder:
        short = Path(folder) / "short.log"
        short.write_text("\n".join(traffic(random.Random(7), 58, 0)) + "\n" + TRACEBACK.format(stamp=stamp(10)))
        words = command(short)
        print(f"timed: {'draftmark why --json' if 'why' in words else 'reading alone: the verb does not run'}")
        times = [run(words).seconds for _ in range(max(runs, 9))]
        print(f"70 lines why {statistics.median(times) * 1000:6.0f} ms  (least {min(times) * 1000:.0f})")
        for name, every_line in (("traffic", ""), ("flood", FLOOD)):
            path = Path(folder) / f"{name}.log"
            write(path, size, every_line)
            compare(name, path, runs)
            path.unlink()


if __name__ == "__main__":
    main()
