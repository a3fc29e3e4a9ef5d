"""Measure the load generator beside its peers.

    python -m bench.load speed    [--peers draftmark,plain] [--runs 5]  # tokens a CPU-second, paced CPU, start
    python -m bench.load accuracy [--peers draftmark] [--runs 3]        # figures beside the truth, 16 streams
    python -m bench.load stall    [--runs 1]                            # an open loop over a server that halts
    python -m bench.load streams  [--streams 10000] [--workers 2]       # so many at once: errors, memory
    python -m bench.load peers                                          # who is known, and how to install them

Needs the reference emitter beside the checkout, in ../shared/stream-lab, and a C compiler. Machines are noisy and
the emitter has a part of this one: the peers take turns, and medians are shown, with the ratio pair by pair.
"""

from __future__ import annotations

import argparse

from bench.load import accuracy, speed, streams
from bench.load.peers import PEERS, chosen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, runs in (("speed", 5), ("accuracy", 3), ("stall", 1), ("streams", 1), ("peers", 0)):
        verb = verbs.add_parser(name)
        verb.add_argument("--peers", default="draftmark,plain" if name == "speed" else "draftmark")
        verb.add_argument("--runs", type=int, default=runs)
        verb.add_argument("--streams", type=int, default=10_000)
        verb.add_argument("--workers", type=int, default=2)
        verb.add_argument("--api", default="openai", choices=["openai", "openai-chat"])
    args = parser.parse_args()
    if args.verb == "peers":
        for peer in PEERS.values():
            print(f"{peer.name:12} {peer.install}")
    elif args.verb == "speed":
        speed.run(chosen(args.peers), args.runs, args.api)
    elif args.verb == "accuracy":
        accuracy.run(chosen(args.peers), args.runs, args.api)
    elif args.verb == "stall":
        accuracy.stall(args.runs)
    else:
        streams.run(args.streams, args.workers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
