"""The GPUs of a host, as their driver tells of them."""

from __future__ import annotations

import re

from draftmark.model import Gpu
from draftmark.ports import Host

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")


def gpus_of(host: Host) -> tuple[Gpu, ...]:
    """All of them; empty where there is no NVIDIA driver, or it does not answer.

    How much of them is free now is left out: what uses it may be the very service that is asked about.
    """
    done = host.run(_QUERY, timeout_s=10.0, limit_bytes=1 << 16)
    if not done.ok:
        return ()
    found = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        name, comma, total = line.rpartition(",")
        if comma and re.fullmatch(r"\s*[0-9]{3,8}\s*", total, re.ASCII):
            found.append(Gpu(name=name.strip()[:100], total_mib=int(total)))
    return tuple(found)
