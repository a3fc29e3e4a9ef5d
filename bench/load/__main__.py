"""Measure the load generator beside its peers.

    python -m bench.load speed    [--peers draftmark,plain] [--runs 5]  # tokens a CPU-second, paced CPU, start
    python -m bench.load accuracy [--peers draftmark] [--runs 3]        # figures beside the truth, 16 streams
    python -m bench.load stall    [--runs 1]                            # an open loop over a server that halts
    python -m bench.load streams  [--streams 10000] [--workers 2]       # so many at once: errors, memory
    python -m bench.load open     [--rate 2000] [--seconds 20]          # so many a second: schedule kept? errors?
    python -m bench.load aa       [--pairs 20] …                        # the same load twice: intervals that hold?
    python -m bench.load peers                                          # who is known, and how to install them

Each peer other than ours has a virtual environment: `--venvs DIR`, or `BENCH_VENVS`, has DIR/NAME/bin for each;
without it the programs are sought in PATH. One that does not run is told in a line and left out.

Needs the reference emitter beside the checkout, in ../shared/stream-lab, and a C compiler. Machines are noisy and
the emitter has a part of this one: the peers take turns, and medians are shown, with the ratio turn by turn.
With `speed --rows FILE` turns are kept, so that a long comparison can be taken in parts.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench.load import aa, accuracy, open_loop, speed, streams
from bench.load.lab import version
from bench.load.peers import PEERS, chosen

SHORT = {"one": "one token a chunk", "four": "1 to 4 tokens a chunk", "eight": "1 to 8 tokens a chunk"}


def main() -> int:
    if sys.argv[1:2] == ["aa"]:
        return aa.main(sys.argv[2:])
    args = _parser().parse_args()
    venvs = args.venvs.resolve() if args.venvs else None
    if args.verb == "peers":
        for peer in PEERS.values():
            print(f"{peer.name:12}{version(peer, venvs):>10}  {peer.install}")
    elif args.verb == "speed":
        speed.run(chosen(args.peers), args.runs, args.api, venvs, args.rows)
    elif args.verb == "accuracy":
        accuracy.run(chosen(args.peers), args.runs, args.api, venvs, [SHORT[s] for s in args.shapes.split(",")])
    elif args.verb == "stall":
        accuracy.stall(args.runs)
    elif args.verb == "open":
        open_loop.run(args.rate, args.seconds, args.workers)
    else:
        streams.run(args.streams, args.workers)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, runs in (("speed", 5), ("accuracy", 3), ("stall", 1), ("streams", 1), ("open", 1), ("peers", 0)):
        verb = verbs.add_parser(name)
        verb.add_argument("--peers", default="draftmark,plain" if name == "speed" else "draftmark")
        verb.add_argument("--venvs", type=Path, default=os.environ.get("BENCH_VENVS") or None)
        verb.add_argument("--runs", type=int, default=runs)
        verb.add_argument("--rows", type=Path)
        verb.add_argument("--shapes", default=",".join(SHORT))
        verb.add_argument("--streams", type=int, default=10_000)
        verb.add_argument("--rate", type=float, default=2000.0)
        verb.add_argument("--seconds", type=float, default=20.0)
        verb.add_argument("--workers", type=int, default=2)
        verb.add_argument("--api", default="openai", choices=["openai", "openai-chat"])
    verbs.add_parser("aa", help="its options: python -m bench.load aa --help")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
