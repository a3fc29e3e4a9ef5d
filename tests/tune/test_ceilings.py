"""Drafts that are not accepted cannot make anything faster: a figure above that is the machine's drift.

The figures are of a real sweep on a shared machine: `chat`, single requests, 0 or 1 of 120 tokens accepted.
Requests sent in turn to all arms at once showed them equal (40.95, 41.12, 41.17, 41.24 tok/s).
"""

from __future__ import annotations

import pytest

from draftmark.tune.decide import Observation, decide
from draftmark.tune.verdicts import AxisDecision, Verdict, conclude

ORDER = ("off", "d4", "d8", "d16", "d16", "d8", "d4", "off", "off", "d4", "d8", "d16", "off")
CHAT = (40.9, 40.8, 47.9, 46.5, 45.9, 44.8, 37.9, 42.2, 39.4, 39.5, 42.8, 48.4, 43.1)
COPY = (38.3, 83.1, 101.4, 109.2, 106.1, 97.3, 84.0, 39.5, 38.7, 81.1, 87.8, 97.8, 39.7)
DEPTH = {"off": 0, "d4": 4, "d8": 8, "d16": 16}


def observations(workload: str, figures: tuple[float, ...], concurrency: int = 1) -> list[Observation]:
    return [
        Observation(
            trial=i + 1,
            round=1 + (i > 3) + (i > 7),
            position_s=16.0 * i,
            arm=arm,
            depth=DEPTH[arm],
            axis=f"{workload}@{concurrency}",
            workload=workload,
            concurrency=concurrency,
            values=(("p", figure),),
        )
        for i, (arm, figure) in enumerate(zip(ORDER, figures, strict=True))
    ]


def ceilings(chat: float, copy: float = 4.0) -> dict[tuple[str, str], float]:
    return {(f"{w}@1", arm): most for w, most in (("chat", chat), ("copy", copy)) for arm in ("d4", "d8", "d16")}


def axes(found: tuple[AxisDecision, ...]) -> dict[str, AxisDecision]:
    return {d.axis: d for d in found}


def test_a_gain_without_accepted_drafts_is_drift() -> None:
    alone = axes(decide(observations("chat", CHAT), baseline="off"))
    assert alone["chat@1"].verdict is Verdict.BETTER  # what the figures alone would have said
    known = axes(decide(observations("chat", CHAT), baseline="off", ceilings=ceilings(1.008)))
    chat = known["chat@1"]
    assert (chat.verdict, chat.choice) == (Verdict.KEEP, "off")
    assert "accepted too rarely, 1.01 tokens a pass at most" in chat.because
    assert all(interval.low <= 1.0 for interval in chat.ratios.values())
    assert not any(chat.better(arm) for arm in chat.ratios)


def test_accepted_drafts_still_gain() -> None:
    both = observations("chat", CHAT) + observations("copy", COPY)
    found = axes(decide(both, baseline="off", ceilings=ceilings(1.0)))
    assert found["copy@1"].verdict is Verdict.BETTER
    assert found["chat@1"].verdict is Verdict.KEEP
    assert found["all@1"].verdict is Verdict.BETTER
    said = conclude(tuple(found.values()), baseline="off")
    assert "on chat no depth is better than off" in said.sentence
    assert said.by_workload == {"chat": "off", "copy": "d8"} or said.by_workload["chat"] == "off"


def test_an_interval_above_the_ceiling_is_widened_to_it() -> None:
    free = axes(decide(observations("copy", COPY), baseline="off"))["copy@1"].ratios["d16"]
    capped = axes(decide(observations("copy", COPY), baseline="off", ceilings=ceilings(1.0, copy=1.5)))
    held = capped["copy@1"].ratios["d16"]
    assert free.low > 1.5
    assert held.low == pytest.approx(1.5)
    assert (held.ratio, held.high) == (free.ratio, free.high)


def test_one_unknown_ceiling_leaves_the_joint_axis_free() -> None:
    both = observations("chat", CHAT) + observations("copy", COPY)
    partly = {key: most for key, most in ceilings(1.0, copy=1.0).items() if key[0] == "chat@1"}
    assert axes(decide(both, baseline="off", ceilings=partly))["all@1"].verdict is Verdict.BETTER
    wholly = axes(decide(both, baseline="off", ceilings=ceilings(1.0, copy=1.0)))
    assert wholly["all@1"].verdict is Verdict.KEEP


def test_an_arm_that_cannot_gain_can_still_lose() -> None:
    slower = tuple(0.8 * f if arm != "off" else f for arm, f in zip(ORDER, CHAT, strict=True))
    chat = axes(decide(observations("chat", slower), baseline="off", ceilings=ceilings(1.0)))["chat@1"]
    assert chat.verdict is Verdict.KEEP
    assert chat.worse("d4")
