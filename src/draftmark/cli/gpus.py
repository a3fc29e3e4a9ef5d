"""The GPUs of a host, as their driver tells of them."""

from __future__ import annotations

import re

from draftmark.model import Gpu
from draftmark.ports import Host

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,mig.mode.current", "--format=csv,noheader,nounits")
_OLD_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_LINE = re.compile(r"(?P<name>.+?),\s*(?P<mib>[0-9]{3,8})\s*(?:,\s*(?P<mig>.*?)\s*)?", re.ASCII)


def gpus_of(host: Host) -> tuple[Gpu, ...]:
    """All of them; empty where there is no NVIDIA driver, or it does not answer.

    How much of them is free now is left out: what uses it may be the very service that is asked about. A card that is
    divided into MIG slices is left out as well: the driver tells the whole card's memory.
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
