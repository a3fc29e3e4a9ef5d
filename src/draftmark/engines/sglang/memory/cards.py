"""How much memory a card has, and how much of it is gone before SGLang counts."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

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
    total = total_of(text)
    if total is None:
        raise UsageError(
            f"--gpu {text[:60]}: neither a known card nor a size",
            next_step=f"give its memory as nvidia-smi prints it, such as 81559MiB, or one of {', '.join(names())}",
        )
    return Gpu(name=text.strip(), total_mib=total)


def total_of(name: str) -> int | None:
    """Memory of a card by name, MiB; None when it is not known."""
    wanted = f" {name.lower().replace('_', ' ')} "
    found = [key for key in _cards() if re.search(rf"(?<![a-z0-9]){re.escape(key)}(?![a-z0-9])", wanted)]
    return _cards()[max(found, key=len)] if found else None


def names() -> tuple[str, ...]:
    """Cards that are known."""
    return tuple(_cards())


@cache
def _cards() -> dict[str, int]:
    return tomllib.loads(resources.files(__package__).joinpath("cards.toml").read_text(encoding="utf-8"))
