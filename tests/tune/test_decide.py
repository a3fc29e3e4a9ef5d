"""What is decided from figures whose meaning is plain to see."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.model import Arm
from draftmark.tune.decide import Observation, astray, conclude, decide
from draftmark.tune.plan import schedule
from draftmark.tune.verdicts import LENGTH, AxisDecision, Conclusion, Interval, Verdict, label, listed

Speed = Callable[[int, str, int], float]  # depth, workload, concurrency → ratio over 40 tok/s


def observe(
    speed: Speed,
    *,
    depths: Sequence[int] = (0, 4, 5, 8),
    baseline: int = 0,
    rounds: int = 3,
    workloads: Sequence[str] = ("copy",),
    concurrencies: Sequence[int] = (1,),
    noise: float = 0.01,
    machine: Callable[[int], float] = lambda trial: 1.0,
    seed: int = 1,
) -> list[Observation]:
    rng = random.Random(seed)
    found = []
    for slot in schedule([Arm(d) for d in depths], rounds, Arm(baseline)):
        for i, concurrency in enumerate(concurrencies):
            for workload in workloads:
                level = 40.0 * speed(slot.arm.depth, workload, concurrency) * machine(slot.number)
                level *= math.exp(rng.gauss(0.0, noise))
                found.append(
                    Observation(
                        trial=slot.number,
                        round=slot.round,
                        position_s=60.0 * slot.number + 10.0 * i,
                        arm=slot.arm.name,
                        depth=slot.arm.depth,
                        axis=f"{workload}@{concurrency}",
                        workload=workload,
                        concurrency=concurrency,
                        values=(("p1", level * 1.5), ("p2", level / 1.5)),
                    )
                )
    return found


def only(decisions: Sequence[AxisDecision], axis: str) -> AxisDecision:
    (found,) = [d for d in decisions if d.axis == axis]
    return found


def curve(depth: int, workload: str, concurrency: int) -> float:
    return {0: 1.0, 4: 2.14, 5: 2.15, 8: 1.6}[depth]


def test_the_shallowest_of_the_ties_wins() -> None:
    (d,) = decide(observe(curve), baseline="off")
    assert d.verdict is Verdict.BETTER
    assert d.choice == "d4"
    assert d.ties == ("d4", "d5")
    assert d.best in d.ties
    assert list(d.values) == ["off", "d4", "d5", "d8"]
    assert list(d.ratios) == ["d4", "d5", "d8"]
    assert d.ratios["d4"].ratio == pytest.approx(2.14, abs=0.06)
    assert d.ratios["d8"].low < 1.6 < d.ratios["d8"].high
    assert d.baseline == d.values["off"] == pytest.approx(40.0, rel=0.02)
    assert d.noise is not None
    assert 0.005 < d.noise < 0.03
    assert d.drift is not None
    assert d.drift.low < 1.0 < d.drift.high
    assert d.because.startswith("depth 4 is 2.1")
    assert d.because.endswith("the baseline for a single request on copy; depth 5 is level with it")


def test_order_of_the_observations_does_not_matter() -> None:
    given_order = observe(curve, workloads=("copy", "chat"), concurrencies=(1, 8))
    shuffled = random.Random(2).sample(given_order, len(given_order))
    in_order = {d.axis: d for d in decide(given_order, baseline="off")}
    for d in decide(shuffled, baseline="off"):
        assert d.choice == in_order[d.axis].choice
        assert d.ratios["d4"].low == pytest.approx(in_order[d.axis].ratios["d4"].low, rel=1e-9)


def over_nodes(found: list[Observation], paces: dict[str, float]) -> list[Observation]:
    """The same trials in turn by nodes of different pace, each of which has its own baseline before and after."""
    names = list(paces)
    spread: list[Observation] = []
    base = [o for o in found if o.depth == 0]
    for at, name in enumerate(names):
        arms = [o for i, o in enumerate([o for o in found if o.depth]) if i % len(names) == at]
        lane = [base[0], *arms, base[-1]]
        for i, o in enumerate(lane):
            values = tuple((prompt, value * paces[name]) for prompt, value in o.values)
            number = 100 * at + i
            spread.append(replace(o, trial=number, position_s=60.0 * i, block=name, values=values))
    return spread


def test_the_pace_of_a_node_is_in_no_ratio() -> None:
    found = observe(lambda d, *_: {0: 1.0, 4: 1.5, 5: 1.5, 8: 1.2}[d])
    alike = only(decide(over_nodes(found, {"a": 1.0, "b": 1.0, "c": 1.0}), baseline="off"), "copy@1")
    apart = only(decide(over_nodes(found, {"a": 1.0, "b": 0.5, "c": 7.0}), baseline="off"), "copy@1")
    assert (apart.choice, apart.ties, apart.verdict) == (alike.choice, alike.ties, alike.verdict) == (
        "d4", ("d4", "d5"), Verdict.BETTER,
    )  # fmt: skip
    for arm, ratio in alike.ratios.items():
        other = apart.ratios[arm]
        assert (other.ratio, other.low, other.high) == pytest.approx((ratio.ratio, ratio.low, ratio.high), rel=1e-9)
        assert apart.values[arm] / apart.values["off"] == pytest.approx(ratio.ratio, rel=1e-9)
    # Taken for one machine they would say something else.
    mixed = [replace(o, block="") for o in over_nodes(found, {"a": 1.0, "b": 0.5, "c": 7.0})]
    assert only(decide(mixed, baseline="off"), "copy@1").verdict is not Verdict.BETTER


def test_nodes_without_a_baseline_or_with_one_that_moved_count_nowhere() -> None:
    found = over_nodes(observe(lambda d, *_: {0: 1.0, 4: 1.5, 5: 1.5, 8: 1.2}[d]), {"a": 1.0, "b": 1.0, "c": 1.0})
    bare = [o for o in found if o.block != "b" or o.depth]
    moved = [
        replace(o, values=tuple((p, v * 0.5) for p, v in o.values)) if o.block == "c" and o.trial > 201 else o
        for o in bare
    ]
    assert astray(found, baseline="off") == {}
    out = astray(moved, baseline="off")
    assert out["b"] == "its baseline was not measured"
    assert "drift beyond noise" in out["c"]
    kept = only(decide(moved, baseline="off"), "copy@1")
    assert kept == only(decide([o for o in found if o.block == "a"], baseline="off"), "copy@1")
    assert only(decide([o for o in moved if o.block == "c"], baseline="off"), "copy@1").void is not None


def test_nothing_better_is_a_settled_answer() -> None:
    (d,) = decide(observe(lambda depth, w, c: 1.0 if depth == 0 else 0.9), baseline="off")
    assert (d.verdict, d.choice) == (Verdict.KEEP, "off")
    assert d.because.startswith("nothing is better than off for a single request on copy")
    assert "a gain of 10% is unlikely for any" in d.because


def test_a_gain_below_the_margin_is_no_gain() -> None:
    decisions = decide(observe(lambda depth, w, c: 1.0 + 0.015 * (depth > 0), noise=0.0005), baseline="off")
    assert decisions[0].verdict is Verdict.KEEP
    finer = decide(
        observe(lambda depth, w, c: 1.0 + 0.05 * (depth > 0), noise=0.0005), baseline="off", tie_margin=0.2
    )
    assert finer[0].choice == "off"


def test_noise_that_hides_a_gain_is_inconclusive() -> None:
    (d,) = decide(observe(lambda depth, w, c: 1.0 + 0.2 * (depth == 5), noise=0.15, seed=4), baseline="off")
    assert (d.verdict, d.choice) == (Verdict.INCONCLUSIVE, None)
    assert "too wide to call" in d.because


def test_speculation_that_costs_is_turned_off() -> None:
    decisions = decide(observe(lambda depth, w, c: 1.3 if depth == 0 else 1.0, baseline=4), baseline="d4")
    assert decisions[0].choice == "off"
    conclusion = conclude(decisions, baseline="d4")
    assert (conclusion.recommended, conclusion.better, conclusion.inconclusive) == ("off", True, False)
    assert conclusion.sentence.startswith("off is 1.")
    assert "the baseline (depth 4) for a single request" in conclusion.sentence


def test_a_service_that_already_runs_the_best_keeps_it() -> None:
    decisions = decide(observe(lambda depth, w, c: 1.0 if depth == 4 else 0.8, baseline=4), baseline="d4")
    conclusion = conclude(decisions, baseline="d4")
    assert (conclusion.recommended, conclusion.better, conclusion.inconclusive) == ("d4", False, False)
    assert conclusion.sentence.startswith("keep depth 4: nothing is better for a single request; the best other, ")


def test_drift_that_interleaving_handles_decides() -> None:
    def warming(trial: int) -> float:
        return 1.0 + 0.02 * trial

    (d,) = decide(observe(curve, machine=warming), baseline="off")
    assert d.choice == "d4"
    assert d.ratios["d4"].ratio == pytest.approx(2.14, abs=0.1)
    assert d.drift is not None
    assert d.drift.ratio == pytest.approx(1.26 / 1.02, abs=0.05)


def test_a_lasting_jump_in_mid_run_voids() -> None:
    decisions = decide(
        observe(curve, machine=lambda trial: 0.75 if trial > 6 else 1.0, concurrencies=(1, 8)), baseline="off"
    )
    for d in decisions:
        assert (d.verdict, d.choice) == (Verdict.INCONCLUSIVE, None)
        assert "slower between trials 6 and 7: drift beyond noise voids the ranking" in d.because
        assert not d.better("d4")
    conclusion = conclude(decisions, baseline="off")
    assert (conclusion.inconclusive, conclusion.better, conclusion.recommended) == (True, False, None)
    assert conclusion.front == ()


def test_one_round_is_judged_by_its_two_baseline_trials() -> None:
    steady = decide(observe(curve, rounds=1), baseline="off")
    assert steady[0].choice == "d4"
    moved = decide(observe(curve, rounds=1, machine=lambda trial: 1.35 if trial > 3 else 1.0), baseline="off")
    assert moved[0].verdict is Verdict.INCONCLUSIVE
    assert "the baseline ended 3" in moved[0].because
    assert "faster for a single request: drift beyond noise" in moved[0].because


def test_a_slow_single_trial_is_not_a_jump() -> None:
    (d,) = decide(observe(curve, machine=lambda trial: 0.8 if trial == 13 else 1.0), baseline="off")
    assert d.void is None
    assert d.choice == "d4"


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_baseline_measured_once_settles_nothing(rounds: int) -> None:
    first = [o for o in observe(curve, rounds=rounds) if o.arm != "off" or o.trial == 1]
    (d,) = decide(first, baseline="off")
    assert (d.verdict, d.choice, d.drift) == (Verdict.INCONCLUSIVE, None, None)
    assert "the baseline was only once measured" in d.because
    assert d.ratios["d4"].ratio > 1.5


def test_without_a_baseline_there_are_no_ratios() -> None:
    (d,) = decide([o for o in observe(curve) if o.arm != "off"], baseline="off")
    assert (d.verdict, d.baseline, d.ratios) == (Verdict.INCONCLUSIVE, None, {})
    assert "the baseline was never measured" in d.because
    assert d.best in {"d4", "d5"}


def test_nothing_but_the_baseline() -> None:
    decisions = decide(observe(curve, depths=(0,)), baseline="off")
    assert decisions[0].verdict is Verdict.INCONCLUSIVE
    assert "nothing but the baseline was measured" in decisions[0].because
    assert conclude(decisions, baseline="off").inconclusive


def test_nothing_measured_at_all() -> None:
    assert decide([], baseline="off") == ()
    conclusion = conclude([], baseline="off")
    assert (conclusion.recommended, conclusion.inconclusive, conclusion.front) == (None, True, ())


def test_figures_that_cannot_be_are_left_out() -> None:
    good = observe(curve)
    broken = [
        Observation(**{**{f: getattr(o, f) for f in o.__slots__}, "values": (("p1", 0.0), ("p2", float("nan")))})
        if o.trial == 2
        else o
        for o in good
    ]
    (d,) = decide(broken, baseline="off")
    assert d.choice == "d4"
    assert math.isfinite(d.values["d4"])
    empty = decide([o for o in broken if o.trial == 2], baseline="off")
    assert empty[0].values == {}
    assert empty[0].best is None
    assert "never measured" in empty[0].because
    assert conclude(empty, baseline="off").sentence == empty[0].because


def test_prompts_are_paired() -> None:
    """Trials that lost the slow prompt are not taken for faster ones."""
    found = [
        Observation(**{**{f: getattr(o, f) for f in o.__slots__}, "values": o.values[:1]})
        if o.arm == "d8" and o.round < 3
        else o
        for o in observe(lambda depth, w, c: 1.0)
    ]
    (d,) = decide(found, baseline="off")
    assert d.ratios["d8"].ratio == pytest.approx(1.0, abs=0.03)


def test_all_workloads_together_weigh_the_same_and_need_every_workload() -> None:
    def speed(depth: int, workload: str, concurrency: int) -> float:
        return (4.0 if workload == "copy" else 1.0) if depth else 1.0

    found = [
        o
        for o in observe(speed, workloads=("copy", "chat"), concurrencies=(1, 8))
        if not (o.arm == "d8" and o.workload == "chat")
    ]
    decisions = decide(found, baseline="off")
    assert [d.axis for d in decisions] == ["copy@1", "chat@1", "copy@8", "chat@8", "all@1", "all@8"]
    together = only(decisions, "all@1")
    assert together.ratios["d4"].ratio == pytest.approx(2.0, abs=0.05)
    assert "d8" not in together.values
    assert "d8" in only(decisions, "copy@1").values
    assert "all@1" not in {d.axis for d in decide(observe(curve), baseline="off")}


def test_more_axes_widen_every_interval() -> None:
    one = decide(observe(curve), baseline="off")[0].ratios["d4"]
    many = only(decide(observe(curve, concurrencies=(1, 2, 4, 8)), baseline="off"), "copy@1").ratios["d4"]
    assert many.low / many.ratio < one.low / one.ratio


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(1e-3, 1e6), st.floats(0.0, 1e5)), min_size=1, max_size=9))
def test_any_figures_give_a_decision_that_holds_together(rows: list[tuple[int, float, float]]) -> None:
    found = [
        Observation(
            trial=i,
            round=1,
            position_s=at_s,
            arm=Arm(depth).name,
            depth=depth,
            axis="copy@1",
            workload="copy",
            concurrency=1,
            values=(("p", value),),
        )
        for i, (depth, value, at_s) in enumerate(rows)
    ]
    (d,) = decide(found, baseline="off")
    assert d.best in d.ties
    assert (d.choice is None) == (d.verdict is Verdict.INCONCLUSIVE)
    if d.verdict is Verdict.BETTER and d.choice is not None:
        assert d.ratios[d.choice].low > 1.0
        assert d.ratios[d.choice].ratio >= 1.02
    said = conclude((d,), baseline="off")
    assert (said.recommended is None) == said.inconclusive


# --- the conclusion ---------------------------------------------------------------------------------------


def told(speed: Speed, *, workloads: Sequence[str] = ("copy", "chat"), noise: float = 0.01) -> Conclusion:
    found = observe(speed, workloads=workloads, concurrencies=(1, 8), noise=noise)
    return conclude(decide(found, baseline="off"), baseline="off")


def test_both_axes_agree() -> None:
    c = told(curve)
    assert (c.latency, c.throughput, c.recommended) == ("d4", "d4", "d4")
    assert c.by_workload == {"copy": "d4", "chat": "d4"}
    assert c.better
    assert set(c.front) <= {"d4", "d5"}
    assert c.ties == ("d4", "d5")
    first, second, third = c.sentence.split("; ")
    assert first == c.because
    assert first.endswith("the baseline for a single request")
    assert second == "depth 5 is level with it"
    assert third.startswith("with 8 requests at once it is 2.1")


def test_a_workload_that_gains_nothing_is_named() -> None:
    c = told(lambda depth, workload, c: 1.0 if depth == 0 or workload == "chat" else 2.14)
    assert c.recommended == "d4"
    assert "on chat no depth is better than off" in c.sentence
    assert c.by_workload == {"copy": "d4", "chat": "off"}


def test_a_workload_that_loses_is_named() -> None:
    c = told(lambda depth, workload, c: 1.0 if depth == 0 else (2.14 if workload == "copy" else 0.8))
    assert "it is slower on chat: 0." in c.sentence
    assert "slower there on chat: 0." in c.sentence


def test_a_workload_with_another_best_is_named() -> None:
    def speed(depth: int, workload: str, concurrency: int) -> float:
        if workload == "copy":
            return {0: 1.0, 4: 3.0, 5: 2.0, 8: 1.0}[depth]
        return {0: 1.0, 4: 1.0, 5: 1.3, 8: 1.0}[depth]

    assert re.search(r"on chat depth 5 is the better one: 1\.(29|30|31)x", told(speed).sentence)


def test_workloads_alike_share_a_clause() -> None:
    c = told(
        lambda depth, workload, c: 3.0 if depth and workload == "copy" else 1.0, workloads=("copy", "chat", "code")
    )
    assert "on chat and code no depth is better than off" in c.sentence


def test_an_arm_that_costs_throughput_gives_way() -> None:
    def speed(depth: int, workload: str, concurrency: int) -> float:
        if concurrency == 1:
            return {0: 1.0, 4: 1.2, 5: 2.0, 8: 1.9}[depth]
        return {0: 1.0, 4: 1.0, 5: 0.6, 8: 0.5}[depth]

    c = told(speed)
    assert (c.latency, c.recommended, c.better) == ("d5", "d4", True)
    assert "depth 5 is faster there, but 0.6" in c.sentence
    assert "with 8 requests at once no difference is seen" in c.sentence
    assert c.front == ("d4", "d5")


def test_a_tie_that_does_not_cost_throughput_is_taken_before_a_lesser_gain() -> None:
    def speed(depth: int, workload: str, concurrency: int) -> float:
        if concurrency == 1:
            return {0: 1.0, 4: 1.2, 5: 2.0, 8: 2.0}[depth]
        return {0: 1.0, 4: 1.0, 5: 0.6, 8: 1.3}[depth]

    assert told(speed).recommended == "d8"


def test_when_every_gain_costs_the_other_axis_the_baseline_stays() -> None:
    c = told(lambda depth, workload, c: 1.0 if depth == 0 else (2.0 if c == 1 else 0.6))
    assert (c.latency, c.throughput, c.recommended) == ("d4", "off", "off")
    assert (c.better, c.inconclusive) == (False, False)
    assert c.sentence.endswith("nothing is better on one and not worse on the other: keep off")
    assert "off" in c.front
    assert "d4" in c.front


def test_throughput_alone_can_decide() -> None:
    c = told(lambda depth, workload, c: 1.5 if depth == 5 and c == 8 else 1.0)
    assert (c.latency, c.throughput, c.recommended, c.better) == ("off", "d5", "d5", True)
    assert c.because.endswith("the baseline with 8 requests at once")
    assert "for a single request no difference is seen" in c.sentence


def test_throughput_that_costs_the_single_request_is_not_taken() -> None:
    c = told(lambda depth, workload, c: 1.0 if depth == 0 else (0.7 if c == 1 else 1.5))
    assert c.recommended == "off"
    assert re.search(r"with 8 requests at once depth 4 is 1\.(49|50|51)x \S+, but 0\.(69|70|71)x", c.sentence)


def test_keeping_on_both_axes_says_so() -> None:
    c = told(lambda depth, workload, c: 1.0 if depth == 0 else 0.9)
    assert c.sentence.startswith("keep off: no depth is better for a single request")
    assert c.sentence.endswith("with 8 requests at once the same holds")


def test_a_gain_on_one_workload_is_told_although_the_baseline_stays() -> None:
    c = told(lambda depth, workload, c: 1.0 if depth == 0 else (1.5 if workload == "copy" else 0.5), noise=0.01)
    assert c.recommended == "off"
    assert "on copy alone depth 4 is 1.5" in c.sentence


def test_an_unsettled_axis_beside_a_settled_one_is_told() -> None:
    found = observe(lambda depth, w, c: 1.0 if depth == 0 else 0.9)
    noisy = observe(lambda depth, w, c: 1.0 + 0.1 * (depth == 5), concurrencies=(8,), noise=0.2)
    c = conclude(decide(found + noisy, baseline="off"), baseline="off")
    assert c.recommended == "off"
    assert not c.inconclusive
    assert c.sentence.endswith("with 8 requests at once nothing is settled")


def test_an_arm_missing_from_the_other_axis_is_told() -> None:
    found = [o for o in observe(curve, concurrencies=(1, 8)) if not (o.concurrency == 8 and o.arm == "d4")]
    c = conclude(decide(found, baseline="off"), baseline="off")
    assert c.recommended == "d4"
    assert "with 8 requests at once depth 4 was not measured" in c.sentence


def test_a_choice_slower_elsewhere_on_one_workload_is_told() -> None:
    def speed(depth: int, workload: str, concurrency: int) -> float:
        if depth == 0:
            return 1.0
        return 2.0 if concurrency == 1 else (1.6 if workload == "copy" else 0.75)

    assert "slower there on chat: 0.7" in told(speed).sentence


def test_labels_of_the_caller_are_used() -> None:
    c = conclude(decide(observe(curve), baseline="off"), baseline="off", labels={"d4": "four"})
    assert c.sentence.startswith("four is 2.1")


def test_the_sentence_stays_short_and_drops_intervals_before_facts() -> None:
    names = ("copying", "chatting", "coding", "translating")

    def speed(depth: int, workload: str, concurrency: int) -> float:
        if depth == 0:
            return 1.0
        return {"copying": 12.0, "coding": 0.7, "translating": 0.6}.get(workload, 1.0)

    c = told(speed, workloads=names)
    assert len(c.sentence) <= LENGTH
    assert "on chatting no depth is better than off" in c.sentence
    assert re.search(r"it is slower on coding: 0\.\d+x and translating: 0\.\d+x", c.sentence)
    assert "(" in c.sentence.split("; ")[0]
    assert "(" not in c.sentence.split("; ")[-1]


def test_words() -> None:
    assert label("off") == "off"
    assert label("d4-mem=0.85-x=1") == "depth 4, mem=0.85-x=1"
    assert listed([]) == ""
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert str(Interval(ratio=2.144, low=2.05, high=2.219)) == "2.14x (2.05\u20132.22)"
    with pytest.raises(ValueError, match="does not hold"):
        Interval(ratio=1.0, low=1.1, high=1.2)
