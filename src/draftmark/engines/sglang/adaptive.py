"""From what a run measured to the configuration of --speculative-adaptive. Pure.

The server keeps a slot per batch size, each with the steps that it may switch between as acceptance moves; 0.5.12
has one list for all batch sizes. Every distinct step count costs a set of CUDA graphs, so that few are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from draftmark.engines.sglang.versions import Rules, facts
from draftmark.errors import InconclusiveError, UsageError


@dataclass(frozen=True, slots=True)
class Configuration:
    """What to write, and what to start the server with.

    Attributes:
        document: For the JSON file.
        start: Steps to start with: the most of all, since state pools are budgeted with the steps at the start and
            allocated for the most (hybrid models, seen in the source up to 0.5.23).
    """

    document: dict[str, object]
    start: int

    def json(self) -> str:
        """The file's text."""
        return msgspec.json.format(msgspec.json.encode(self.document), indent=2).decode() + "\n"

    def flags(self, path: str) -> tuple[str, ...]:
        """The server's flags for a file at `path`; for EAGLE, EAGLE3 or NEXTN."""
        return (
            "--speculative-num-steps",
            str(self.start),
            "--speculative-eagle-topk",
            "1",
            "--speculative-num-draft-tokens",
            str(self.start + 1),
            "--speculative-adaptive",
            "--speculative-adaptive-config",
            path,
        )


def configuration(best: Mapping[int, int], rules: Rules) -> Configuration:
    """Slots from the best depth at each concurrency.

    A slot may use its own best depth and the best of its neighbours: where acceptance falls, the next shallower one
    that was worth something under more load; where it rises, the next deeper.

    Args:
        best: Concurrency, at least 1, to the depth that was best there; 0 is no drafting.
        rules: Of the server's version.

    Raises:
        UsageError: Nothing was measured, or this version has no adaptive speculation.
        InconclusiveError: One depth is best at every concurrency, so that there is nothing to adapt.
    """
    known = facts()["adaptive"]
    if rules.minor < known["since"]:
        raise UsageError(
            f"--speculative-adaptive came with SGLang 0.5.{known['since']}",
            evidence=(f"the version is {rules.version or f'0.5.{rules.minor}'}",),
            next_step="upgrade SGLang, or use the one depth that is best for you",
        )
    if not best or any(level < 1 or depth < 0 for level, depth in best.items()):
        raise UsageError(
            "no best depth by concurrency: nothing to write a configuration from",
            next_step="tune at several concurrencies, such as --concurrency 1,8,32",
        )
    levels = sorted(best)
    steps = sorted({best[level] for level in levels})
    if len(steps) == 1:
        raise InconclusiveError(
            f"depth {steps[0]} is best at every concurrency measured: there is nothing to adapt",
            evidence=(f"concurrency {', '.join(map(str, levels))}",),
            next_step="keep that depth",
        )
    if rules.minor < known["slots_since"]:
        return _flat(steps)
    slots: dict[str, object] = {
        str(level): {"candidate_steps": sorted({best[each] for each in levels[max(0, at - 1) : at + 2]})}
        for at, level in enumerate(levels)
    }
    return Configuration(slots, steps[-1])


def _flat(steps: list[int]) -> Configuration:
    """0.5.12 switches between at least two step counts, none of them 0."""
    drafting = [step for step in steps if step]
    if len(drafting) < 2:
        raise InconclusiveError(
            "with fewer than two depths that draft there is nothing for SGLang 0.5.12 to switch between",
            evidence=(f"best depths: {', '.join(map(str, steps))}",),
            next_step="keep the depth of the concurrency that matters most",
        )
    return Configuration({"candidate_steps": drafting}, drafting[-1])
