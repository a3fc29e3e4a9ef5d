"""Reads a synthetic SGLang log of a gigabyte: megabytes a second, memory, ratio to `grep -c` in the same run.

    python bench/sglang_log.py [MEGABYTES]

The log is a usual mix: a start, then prefill and decode batches, the access log, now and then a retraction, and
lines that the grammar does not know. Read twice: for the start that `fit` needs, and for all that it says.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from draftmark.engines.sglang.log import read_log_file  # noqa: E402
from draftmark.engines.sglang.log.boot import read_boot  # noqa: E402
from draftmark.engines.sglang.log.last_start import last_start  # noqa: E402

START = ROOT / "tests" / "data" / "sglang" / "captured-0.5.17-k3.log"


def block(number: int) -> str:
    """Half a megabyte or so of serving; figures differ from line to line."""
    lines = []
    for i in range(number * 600, (number + 1) * 600):
        stamp = f"[2026-11-29 {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}] "
        lines.append(
            f"{stamp}Prefill batch, #new-seq: {i % 7 + 1}, #new-token: {i % 8192}, #cached-token: {i % 4096}, "
            f"token usage: 0.{i % 100:02}, #running-req: {i % 48}, #queue-req: {i % 9}, #pending-token: 0, "
            f"cuda graph: True, input throughput (token/s): {i % 99991 + i % 97 / 100:.2f}"
        )
        lines.extend(
            f"{stamp}Decode batch, #running-req: {i % 48}, #token: {i * 7 % 338982}, token usage: 0.{i % 100:02}, "
            f"accept len: {1 + (i + k) % 300 / 100:.2f}, accept rate: 0.{(i + k) % 100:02}, cuda graph: True, "
            f"gen throughput (token/s): {(i * 31 + k) % 5000 + i % 89 / 100:.2f}, #queue-req: {i % 9}"
            for k in range(2)
        )
        lines.append(f'{stamp}INFO:     127.0.0.1:{i % 60000} - "POST /generate HTTP/1.1" 200 OK')
        if i % 50 == 0:
            lines.append(f"{stamp}a line of some extension, number {i}")
        if i % 200 == 0:
            lines.append(
                f"{stamp}KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: {i}"
            )
    return "\n".join(lines) + "\n"


def write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(START.read_bytes())
        number = 0
        while file.tell() < size:
            file.write(block(number).encode())
            number += 1


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else "1024") << 20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sglang.log"
        write(path, size)
        megabytes = path.stat().st_size / 1e6
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        with path.open("rb") as file:
            boot = read_boot(last_start(iter(lambda: file.read(1 << 20), b"")).lines())
        start_took = time.perf_counter() - began
        start_after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, began_cpu = time.perf_counter(), time.process_time()
        log = read_log_file(path)
        took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        grep = subprocess.run(
            ["grep", "-c", "Decode batch", str(path)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        grep_took = time.perf_counter() - began
    if boot.summary != log.boot.summary or boot.summary is None:
        sys.exit(f"the last start says {boot.summary}, the whole log {log.boot.summary}")
    if int(grep.stdout) != log.serving.decode_lines:
        sys.exit(f"grep counts {grep.stdout.strip()} decode lines, the reader {log.serving.decode_lines}")
    print(
        f"its last start: {start_took:.2f} s, {megabytes / start_took:.0f} MB/s, ratio to grep -c "
        f"{start_took / grep_took:.1f}; memory +{(start_after - before) / 1024:.1f} MiB"
    )
    print(
        f"all of it: {megabytes:.0f} MB, {log.lines.total} records: {took:.1f} s, {megabytes / took:.1f} MB/s "
        f"({took_cpu:.1f} s of CPU, {megabytes / took_cpu:.1f} MB/s); "
        f"grep -c {grep_took:.2f} s, ratio {took / grep_took:.0f}; memory +{(after - before) / 1024:.1f} MiB"
    )


if __name__ == "__main__":
    main()
