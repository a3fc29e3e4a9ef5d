"""How quickly the command answers, beside the least that Python itself needs, in one run.

    python bench/startup.py [RUNS]

Prints medians and the ratio pair by pair: machines are noisy, so only the ratio is worth comparing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def seconds(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    ours = [sys.executable, "-m", "draftmark", "--help"]
    floor = [sys.executable, "-c", "import argparse; argparse.ArgumentParser(prog='x').print_help()"]
    seconds(ours)
    pairs = [(seconds(ours), seconds(floor)) for _ in range(runs)]
    print(f"draftmark --help    median {statistics.median(a for a, _ in pairs) * 1000:6.0f} ms")
    print(f"python + argparse   median {statistics.median(b for _, b in pairs) * 1000:6.0f} ms")
    print(f"ratio               median {statistics.median(a / b for a, b in pairs):6.2f}")


if __name__ == "__main__":
    main()
