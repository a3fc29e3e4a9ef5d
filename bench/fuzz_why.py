"""Fuzzes what `draftmark why` reads: minutes of broken bytes, and no exception but `BadInputError`, none over 2 s.

    python bench/fuzz_why.py [MINUTES]

With atheris (`pip install atheris`) libFuzzer leads it by coverage. Without, it mutates lines of every format: cut,
spliced, repeated, damaged; what reaches lines of code that nothing reached before joins the stock.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from draftmark.errors import BadInputError  # noqa: E402
from draftmark.postmortem.intake import Hints, Limits, read_bytes  # noqa: E402

HINTS = Hints(("Killed process", "out of memory", "Error", "\u00e9"))
TIGHT = Limits(whole_bytes=400, whole_lines=20, head_lines=3, tail_lines=4, hits_per_hint=3, last_hits=2)
SLOWEST_S = 2.0
INTAKE = str(ROOT / "src" / "draftmark" / "postmortem" / "intake")

SEEDS = [
    b"Jun 02 03:10:16 h systemd[1]: llm.service: Main process exited, code=killed, status=9/KILL\n",
    b'2026-06-02T03:10:16.123456+0200 h python3[41802]: [2026-06-02 03:10:16 DP0 TP0]   File "x"\n',
    b"[  155.090000] oom-kill:constraint=CONSTRAINT_MEMCG,task=python3,pid=9\n[Di M\xc3\xa4r  3 10:00:00 2026] x\n",
    b'<34>1 2003-10-11T22:14:15.003Z h su 12 ID47 [a b="c"] x\nkern  :err   : [12.345678] x\n6,12,34567,-;x\n',
    b'{"__REALTIME_TIMESTAMP":"1772445600250000","MESSAGE":[97,10,98],"_PID":"7","UNIT":"a.service"}\n',
    b'{"log":"a ","stream":"stderr","time":"2026-03-02T10:00:00Z"}\n{"log":"b\\n","stream":"stderr"}\n',
    b"2026-03-02T10:00:00.1Z stderr P a\n2026-03-02T10:00:00.1Z stderr F b\nvllm-1  | (EngineCore_DP0 pid=8) x\n",
    b"(RayWorkerWrapper pid=1, ip=10.0.0.2) ERROR 06-06 14:20:34 [core.py:708] Traceback (most recent call last):",
    b"[rank5]:[E411 10:18:06.598287174 P.cpp:629] [Rank 5] x\n[1,0]<stderr>:x\n0.00.281.580 I srv x\n",
    b'time=2025-06-28T08:05:42.144-07:00 level=INFO source=a.go:1 msg="a \\"b\\"" error="c"\n[pod/a/b] x\n',
    b"2024-05-01T10:00:00.1Z ERROR a: rank=0\n[03/02/2026-10:00:00] [TRT-LLM] [RANK 3] [E]\n",
    b"n:1:2 [0] NCCL WARN x\n",
    b"Loading:  50%|##   | 3/6 [00:01<00:01,  2.5it/s]\rLoading: 100%| 6/6 [00:02, 3it/s][2026-03-02 10:00:00] x\r",
    b"Id=a.service\nActiveState=failed\nResult=timeout\nExecMainStatus=9\n",
    b'[{"Id":"a","State":{"ExitCode":137,"OOMKilled":false},"HostConfig":{"Memory":0}}]',
    b'{"apiVersion":"v1","kind":"Pod","status":{"containerStatuses":[]}}',
    b"Name:  a\nNamespace: b\nStatus: Failed\nContainers:\nEvents:\n  Type  Reason\n",
    b"JobID|JobName|State|ExitCode\n1|a|OUT_OF_MEMORY|0:125\n",
    b"  PID  PPID COMMAND\n1 0 init\n",
    b'# HELP a b\na_total{x="y"} 3 1763618340000\n',
    b"__CURSOR=s\n__REALTIME_TIMESTAMP=1772445600250000\nMESSAGE=x\n\n",
    b"Mon 2026-03-02 10:00:00.25 UTC [s=1;i=1]\n    MESSAGE=x\n",
    "3月 03 10:00:00 h kernel: x\n[火  3月  3 10:00:00 2026] x\n".encode(),
    "\ufeff[2026-03-02 10:00:00] x\n".encode("utf-16"),
]


def one(data: bytes) -> None:
    """Both ways of reading: whole, and as if it were large."""
    size = data[0] + 1 if data else 1
    began = time.perf_counter()
    for limits in (Limits(), TIGHT):
        blocks = (data[at : at + size] for at in range(0, len(data), size))
        with contextlib.suppress(BadInputError):
            read_bytes("x", blocks, hints=HINTS, limits=limits)
        taken = time.perf_counter() - began
        if taken > SLOWEST_S:
            raise TimeoutError(f"{taken:.1f} s for {len(data)} bytes")


class Coverage:
    """Which lines of intake were ever run: new ones make an input worth keeping."""

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, int]] = set()
        self.fresh = False

    def follow(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any] | None:
        """A trace function."""
        if event == "call":
            return self.follow if frame.f_code.co_filename.startswith(INTAKE) else None
        place = (frame.f_code, frame.f_lineno)
        if place not in self.seen:
            self.seen.add(place)
            self.fresh = True
        return self.follow

    def watch(self, data: bytes) -> bool:
        """Reads under observation; whether it went where nothing went before."""
        self.fresh = False
        sys.settrace(self.follow)
        try:
            one(data)
        finally:
            sys.settrace(None)
        return self.fresh


def mutated(draw: random.Random, stock: list[bytes]) -> bytes:
    """One to six changes to something of the stock."""
    data = bytearray(draw.choice(stock))
    for _ in range(draw.randint(1, 6)):
        at, end = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
        match draw.randint(0, 7):
            case 0:
                data[at:end] = b""
            case 1:
                data[at:at] = draw.choice(stock)
            case 2:
                data[at:at] = draw.randbytes(draw.randint(1, 8))
            case 3:
                data[at:end] = data[at:end] * draw.randint(2, 40)
            case 4 if data:
                data[min(at, len(data) - 1)] ^= 1 << draw.randint(0, 7)
            case 5:
                data[at:at] = draw.choice(b"\n\r\x1b[]{}()\"\\' \t:|0=\x00").to_bytes() * draw.choice(
                    (1, 2, 50, 5000)
                )
            case 6:
                other = draw.choice(stock)
                data[at:end] = other[: draw.randint(0, len(other))]
            case _:
                data = bytearray(
                    data.decode("utf-8", "replace").encode(draw.choice(("utf-16", "latin-1", "utf-8")), "replace")
                )
    return bytes(data[:1_000_000])


def mutate_for(seconds: float, seeds: Iterable[bytes]) -> int:
    """Without atheris. The number of inputs that broke something."""
    draw, coverage, stock = random.Random(time.time_ns()), Coverage(), list(seeds)
    began, count, broken, slowest = time.monotonic(), 0, 0, 0.0
    for seed in stock:
        coverage.watch(seed)
    while time.monotonic() - began < seconds and broken < 20:
        data = mutated(draw, stock)
        count += 1
        start = time.perf_counter()
        try:
            if len(data) < 4000 and count % 3 == 0:
                if coverage.watch(data):
                    stock.append(data)
            else:
                one(data)
        except Exception:
            broken += 1
            traceback.print_exc()
            print(f"broken by {data[:2000]!r} ({len(data)} bytes)", flush=True)
        slowest = max(slowest, time.perf_counter() - start)
    print(
        f"{count} inputs, {broken} broke something, slowest {slowest:.2f} s, {len(coverage.seen)} lines reached, ",
        end="",
    )
    print(f"{len(stock) - len(SEEDS)} inputs kept for what they reached")
    return broken


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: mutations of real lines instead")
        sys.exit(1 if mutate_for(minutes * 60, SEEDS) else 0)
    atheris.instrument_all()
    with tempfile.TemporaryDirectory(prefix="draftmark-fuzz-") as folder:
        for number, seed in enumerate(SEEDS):
            (Path(folder) / str(number)).write_bytes(seed)
        options = [f"-max_total_time={int(minutes * 60)}", "-max_len=20000", "-timeout=10", folder]
        atheris.Setup([sys.argv[0], *options], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
