"""Free memory round the loading of weights, by a boot log whose lines have to bear each other out. Pure.

What a load took is the difference of two readings (10:model_executor/model_runner.py:1075-1250, 23:…:1274-1380):
`Load weight end` says by itself what its `begin` said, and a line that was lost can be told from one that is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory.cards import GIB

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog, WeightsLine

_OFF = 0.03  # GiB by which two readings of one state differ at most: three roundings, and what else moves
_BETWEEN = 1.0  # GiB that may be taken between the target's load and the draft's
_DRAFTS = re.compile(r"(?i)nextn|mtp|eagle|dflash|dspark|draft|assistant")
# Classes that stand in for many architectures (14:model_loader/utils.py get_model_architecture).
_STAND_IN = ("Transformers", "Quant", "MindSpore", "EmbeddingGemma")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Free memory of one rank, bytes; None is what no line tells.

    Attributes:
        before: Before anything was loaded.
        target: Once the target was.
        draft: Once the draft was.
        draft_weights: What the draft took.
    """

    before: float | None
    target: float
    draft: float | None
    draft_weights: float | None


def is_draft(name: str) -> bool:
    """Whether a class, as `type=` prints it, is one that only drafts."""
    return _DRAFTS.search(name) is not None


def is_of(name: str, architecture: str) -> bool:
    """Whether a class may have loaded a target of this architecture: the same family, whatever its head."""
    return name.startswith(_STAND_IN) or name.partition("For")[0] == architecture.partition("For")[0]


def target_line(boot: BootLog) -> WeightsLine | None:
    """The line of the target's weights; None where it was lost."""
    first = boot.weights[0] if boot.weights else None
    if first is None or is_draft(first.type) or _later(boot, first):
        return None
    return first


def _later(boot: BootLog, first: WeightsLine) -> bool:
    """Whether more was free before loading than this line knows of: something was loaded before it."""
    begin = boot.gpu_avail_before_weights_gib
    return begin is not None and begin > first.avail_gib + first.mem_gib + _OFF


def loading_of(boot: BootLog, *, resident: bool) -> Loading | str | None:
    """What the lines tell together; why they contradict each other, in words; None where they tell too little.

    Args:
        boot: The log.
        resident: The draft's weights are loaded straight after the target's, before the pools are sized.
    """
    lines = boot.weights
    if not lines:
        return None
    begin = boot.gpu_avail_before_weights_gib
    first = target_line(boot)
    if first is None:
        draft = lines[-1]
        after = draft.avail_gib + draft.mem_gib
        if not resident or len(lines) > 1 or not (is_draft(draft.type) or len(boot.weights_begins) > 1):
            return _contradiction(boot, lines[0]) if _later(boot, lines[0]) else None
        before = begin * GIB if begin is not None and begin > after + _OFF else None
        return Loading(
            before=before, target=after * GIB, draft=draft.avail_gib * GIB, draft_weights=draft.mem_gib * GIB
        )
    told = first.avail_gib + first.mem_gib
    agreed = begin if begin is not None and abs(begin - told) <= _OFF else told
    if begin is not None and agreed != begin and abs(begin - first.avail_gib) > _OFF:
        return _contradiction(boot, first)  # nor is it the draft's, the first one being lost
    if len(lines) == 1:
        return Loading(before=agreed * GIB, target=first.avail_gib * GIB, draft=None, draft_weights=None)
    last = lines[-1]
    if not _follows(boot, first, last, resident=resident):
        return _contradiction(boot, last)
    weights = last.mem_gib if len(lines) == 2 or not resident else first.avail_gib - last.avail_gib
    return Loading(
        before=agreed * GIB,
        target=first.avail_gib * GIB,
        draft=last.avail_gib * GIB,
        draft_weights=weights * GIB,
    )


def _follows(boot: BootLog, first: WeightsLine, last: WeightsLine, *, resident: bool) -> bool:
    """Whether the last load began with what is printed at its beginning, and with what the first one had left."""
    before = last.avail_gib + last.mem_gib
    if len(boot.weights_begins) == len(boot.weights) and abs(boot.weights_begins[-1] - before) > _OFF:
        return False
    if any(later.avail_gib > earlier.avail_gib + _OFF for earlier, later in pairwise(boot.weights)):
        return not resident
    return not resident or len(boot.weights) > 2 or -_OFF <= first.avail_gib - before <= _BETWEEN


def _contradiction(boot: BootLog, line: WeightsLine) -> str:
    begin = boot.gpu_avail_before_weights_gib
    return (
        f"the log contradicts itself: {line.type} was loaded with {line.avail_gib + line.mem_gib:.2f} GiB free, "
        + (f"and {begin:.2f} GiB were free before loading" if begin is not None else "and less was free before")
    )
