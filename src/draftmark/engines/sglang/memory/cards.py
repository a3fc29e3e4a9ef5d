"""How much memory a card has, and how much of it is gone before SGLang counts."""

from __future__ import annotations

import re

from draftmark.engines.cards import card_of, names_with_memory
from draftmark.errors import UsageError
from draftmark.model import Gpu

GIB = float(1 << 30)
MIB = float(1 << 20)

# What driver, CUDA context and kernels hold when `pre` is read: 143771 MiB of an H200 against 139.18 GiB, solved
# from four boots of 0.5.17. Other cards and drivers were seen from 1.0 to 1.6 GiB.
BEFORE_LOADING = 1.22 * GIB
BEFORE_LOADING_SPREAD = 0.4 * GIB
MEASURED_MIB = 143771
MEASURED_SPREAD = 0.1 * GIB
# Communication buffers of a tensor-parallel group, on top: 0.39 GiB in a group of four, 2.01 in one of eight, by
# public logs.
GROUP = 1.0 * GIB
GROUP_SPREAD = 1.3 * GIB
# Between `pre` and `Load weight begin. avail mem`: 139.19 against 139.11 GiB, same boots; `pre` is not printed.
UNPRINTED = 0.08 * GIB

_SIZE = re.compile(r"\s*([0-9]{1,7}(?:\.[0-9]{1,3})?)\s*(gib|mib|gb|g|m|mb)?\s*", re.IGNORECASE | re.ASCII)


def gpu_of(text: str) -> Gpu:
    """A card by name (`h200`, `NVIDIA H100 80GB HBM3`) or by size (`80GiB`, `143771MiB`, `143771`).

    Raises:
        UsageError: Neither.
    """
    size = _SIZE.fullmatch(text)
    if size is not None:
        unit = (size[2] or "mib").lower()
        mib = round(float(size[1]) * (1024 if unit.startswith("g") else 1))
        if 1024 <= mib <= 4 << 20:
            return Gpu(name=text.strip(), total_mib=mib)
    card = card_of(text)
    if card is None or card.mib is None:
        raise UsageError(
            f"--gpu {text[:60]}: neither a known card nor a size",
            next_step="give its memory (that of a MIG slice, of a laptop's GPU) as nvidia-smi prints it, such as "
            f"81559MiB, or one of {', '.join(names_with_memory())}",
        )
    return Gpu(name=text.strip(), total_mib=card.mib)
