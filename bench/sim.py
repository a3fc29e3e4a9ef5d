"""What the simulated server costs: CPU seconds of its process for so many requests, the client counted apart.

    python bench/sim.py [--requests 5000] [--concurrency 64] [--tokens 256]

Tokens come as fast as the computer can make them (`--serve-speed`), over SGLang's own API, streamed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from draftmark.load.client import run_closed_loop
from draftmark.load.workloads import load_workloads

DEPTH = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256)
    args = parser.parse_args()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    own = f"--model qwen35-35b --speed 2000 --serve-speed 10000 -- --port {port} --mem-fraction-static 0.85"
    chain = f"--speculative-num-steps {DEPTH} --speculative-eagle-topk 1 --speculative-num-draft-tokens {DEPTH + 1}"
    flags = f"--max-running-requests {args.concurrency} --speculative-algorithm NEXTN {chain}"
    words = [sys.executable, "-m", "draftmark", "sim", *own.split(), *flags.split()]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "ready to roll" not in process.stderr.readline():
        pass
    drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
    try:
        (workload,) = load_workloads(["chat"])
        prompts = tuple(dataclasses.replace(prompt, max_tokens=args.tokens) for prompt in workload.prompts)
        before, client, began = cpu_s(process.pid), time.process_time(), time.monotonic()
        run = run_closed_loop(
            f"http://127.0.0.1:{port}",
            dataclasses.replace(workload, prompts=prompts),
            concurrency=args.concurrency,
            repeat=-(-args.requests // len(prompts)),
            warmup=0,
            api="sglang",
        )
        spent = cpu_s(process.pid) - before
        failed = sum(record.error is not None for record in run.records)
        tokens = sum(record.output_tokens or 0 for record in run.records)
        print(f"requests        {len(run.records)}, {failed} failed, {tokens:,} tokens, {args.concurrency} at once")
        print(f"server CPU      {spent:.1f} s ({1e3 * spent / len(run.records):.2f} ms a request)")
        print(f"client CPU      {time.process_time() - client:.1f} s")
        print(f"in all          {time.monotonic() - began:.1f} s")
    finally:
        process.kill()
        process.wait()
        drain.wait()
    return 0


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
