"""What a result says of the nodes of a cluster: whose figures count, and how they stand beside others. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftmark.run.records import LOST, RunRecord
from draftmark.tune.decide import Observation, astray, joint_levels
from draftmark.tune.observing import rounded


@dataclass(frozen=True, slots=True)
class Crowd:
    """The nodes of a run; of one host, nothing.

    Attributes:
        record: The run.
        out: Nodes whose figures count nowhere, and why.
        levels: By node and axis: natural log of the baseline's geometric mean.
        joint: By concurrency and trial: tok/s over all workloads.
    """

    record: RunRecord
    out: Mapping[str, str]
    levels: Mapping[tuple[str, str], float]
    joint: Mapping[int, Mapping[int, float]]

    @classmethod
    def of(cls, record: RunRecord, seen: Sequence[Observation]) -> Crowd:
        """By the records, and the observations made of them."""
        if record.info.cluster is None:
            return cls(record, {}, {}, {})
        base = record.info.baseline.name
        sums: dict[tuple[str, str], list[float]] = {}
        for o in seen:
            values = [math.log(value) for _, value in o.values if 0.0 < value < math.inf]
            if o.arm == base and values:
                sums.setdefault((o.block, o.axis), []).append(math.fsum(values) / len(values))
        levels = {key: math.fsum(own) / len(own) for key, own in sums.items()}
        return cls(record, astray(seen, baseline=base), levels, joint_levels(seen))

    def counts(self, node: str | None) -> bool:
        """Whether what was measured there counts."""
        return node not in self.out

    def scale(self, node: str | None, axis: str) -> float:
        """From a node's figures to those of the mean node, by their baselines."""
        own = self.levels.get((node or "", axis))
        if own is None:
            return 1.0
        others = [level for (n, a), level in self.levels.items() if a == axis and self.counts(n)]
        return math.exp(math.fsum(others) / len(others) - own) if others else 1.0

    def document(self) -> list[dict[str, Any]]:
        """One entry a node, in the order of their first trials."""
        trials = [r.trial for r in self.record.trials]
        names = dict.fromkeys(t.node for t in sorted(trials, key=lambda t: t.number) if t.node is not None)
        lost = {a.detail.get("node"): a.detail.get("because") for a in self.record.actions if a.what == LOST}
        found = []
        for name in names:
            own = [t for t in trials if t.node == name]
            base = sorted(t.number for t in own if t.arm == self.record.info.baseline)
            figures = {c: [level[n] for n in base if n in level] for c, level in self.joint.items()}
            found.append(
                {
                    "node": name,
                    "trials": sorted(t.number for t in own),
                    "baseline_tok_s": {str(c): [rounded(value) for value in own] for c, own in figures.items()},
                    "counts": self.counts(name),
                    "because": self.out.get(name),
                    "lost": lost.get(name),
                }
            )
        return found


def warnings(record: RunRecord, crowd: Crowd) -> list[str]:
    """Nodes that do not count, and nodes that were lost."""
    if record.info.cluster is None:
        return []
    ended = any(action.what == "finish" for action in record.actions)
    found = [f"nothing of {node} counts: {why}" for node, why in crowd.out.items() if ended]
    found += [
        f"{action.detail['node']} was lost: {action.detail.get('because')}"
        for action in record.actions
        if action.what == LOST and action.detail.get("node") is not None
    ]
    base = record.info.baseline
    for entry in crowd.document():
        starts = [r.trial for r in record.trials if r.trial.node == entry["node"] and r.trial.arm == base]
        if ended and entry["counts"] and len(starts) == 1 and len(entry["trials"]) > 1:
            found.append(f"{entry['node']} measured the baseline only before its arms: its drift is not known")
    return found
