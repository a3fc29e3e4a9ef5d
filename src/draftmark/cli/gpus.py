"""The GPUs of a host, as their driver tells of them."""

from __future__ import annotations

import argparse
import re

from draftmark.engines.sglang.memory.cards import gpu_of
from draftmark.model import Gpu
from draftmark.ports import Host

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,mig.mode.current", "--format=csv,noheader,nounits")
_OLD_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_LINE = re.compile(r"(?P<name>.+?),\s*(?P<mib>[0-9]{3,8})\s*(?:,\s*(?P<mig>.*?)\s*)?", re.ASCII)


def add_argument(parser: argparse._ActionsContainer) -> None:
    """A card that the user names, in the place of those that the driver tells of."""
    parser.add_argument(
        "--gpu",
        "--gpu-memory",
        metavar="CARD",
        help="h200, 80GiB, 143771MiB: one card of the service (default: what nvidia-smi says on its host)",
    )


def named(args: object) -> tuple[Gpu, ...]:
    """That card; nothing where none is named, or the verb does not ask."""
    text = getattr(args, "gpu", None)
    return () if text is None else (gpu_of(text),)


def gpus_of(host: Host) -> tuple[Gpu, ...]:
    """All of them; empty where there is no NVIDIA driver, or it does not answer.

    How much of them is free now is left out: what uses it may be the very service that is asked about. So is a card
    that is divided into MIG slices: the driver tells the whole card's memory.
    """
    done = host.run(_QUERY, timeout_s=10.0, limit_bytes=1 << 16)
    if not done.ok:
        done = host.run(_OLD_QUERY, timeout_s=10.0, limit_bytes=1 << 16)
    if not done.ok:
        return ()
    found = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        said = _LINE.fullmatch(line)
        if said is not None and said["mig"] != "Enabled":
            found.append(Gpu(name=said["name"].strip()[:100], total_mib=int(said["mib"])))
    return tuple(found)
