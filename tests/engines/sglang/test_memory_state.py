"""The rules of recurrent state by version, against figures that the released functions gave."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang.memory import pools, state
from draftmark.engines.sglang.memory.anatomy import Anatomy, Heads, RecurrentState, Tensors
from draftmark.engines.sglang.memory.budget import Budget
from draftmark.engines.sglang.memory.cell import Cell
from draftmark.engines.sglang.memory.fit import Case, judge
from draftmark.engines.sglang.memory.rules import choose, releases
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.model import Arm

GIB = 1 << 30
# Qwen3-Next-80B on one rank.
P = 77_266_944
NEXT = RecurrentState(
    layers=36, inner=4096, groups=16, group_width=256, conv_columns=3, heads=32, rows=128, columns=128
)
# What the released functions gave: steps -> (slots, running, tokens) of three versions.
GIVEN = tomllib.loads((Path(__file__).parents[2] / "data" / "sglang" / "state-table.toml").read_text())
TABLE = {int(steps): [tuple(cells) for cells in row] for steps, row in GIVEN["steps"].items()}
COLUMNS = tuple(zip(GIVEN["versions"], GIVEN["cell"], strict=True))


def eagle(steps: int, **more: object) -> Settings:
    return Settings(algorithm="EAGLE", steps=steps, draft_tokens=steps + 1, **more)  # type: ignore[arg-type]


def solved(version: str, settings: Settings, budget: float, cell: int = 26_624, q: int = 5) -> pools.Pools:
    cost = state.StateCost(slot=P, per_request=q, draft_tokens=settings.draft_tokens)
    rules = choose(version).rules
    return pools.solve(rules, settings, Cell(bytes=cell, target=cell), cost, budget, 262_144)


@pytest.mark.parametrize("steps", TABLE)
@pytest.mark.parametrize("column", range(3))
def test_the_table_of_three_versions(steps: int, column: int) -> None:
    version, cell = COLUMNS[column]
    found = solved(version, eagle(steps), GIVEN["gib"] * GIB, cell)
    assert (found.slots, found.running, found.tokens) == TABLE[steps][column]
    assert found.limit == "state-slots"


def test_the_founding_case_loses_four_requests_by_two_steps() -> None:
    """21 to 17 under 0.5.14, for every budget of 399 to 418 states; never by one step."""
    for states in (399.1, 408.0, 417.9):
        runs = {steps: solved("0.5.14", eagle(steps), states * P).running for steps in range(1, 8)}
        assert (runs[3], runs[5]) == (21, 17)
    for states in range(300, 480):
        runs = {steps: solved("0.5.17", eagle(steps), states * P).running for steps in range(1, 8)}
        assert all((runs[k], runs[k + 1]) != (21, 17) for k in range(1, 7))


def test_bytes_of_a_slot() -> None:
    assert state.slot_bytes(NEXT, Settings(), {}) == P
    assert state.slot_bytes(NEXT, Settings(tp=4), {}) == P // 4
    half = state.slot_bytes(NEXT, Settings(ssm_dtype="bfloat16"), {})
    assert half == state.slot_bytes(NEXT, Settings(), {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}) < P * 0.53


@pytest.mark.parametrize(
    ("version", "settings", "q"),
    [
        ("0.5.14", eagle(3), 5),
        ("0.5.14", Settings(radix=False), 1),
        ("0.5.14", Settings(overlap=False), 3),
        ("0.5.14", Settings(strategy="extra_buffer", overlap=False), 4),
        ("0.5.17", Settings(strategy="extra_buffer_lazy"), 4),
        ("0.5.17", Settings(strategy="no_buffer"), 3),
        ("0.5.12", Settings(), 3),
        ("0.5.12", eagle(3, strategy="extra_buffer"), 5),
        ("0.5.12", eagle(3), 5),
    ],
)
def test_slots_of_a_request(version: str, settings: Settings, q: int) -> None:
    assert state.slots_a_request(choose(version).rules, settings, "Qwen3NextForCausalLM", {}) == q


def test_a_model_without_support_has_no_extra_buffer() -> None:
    rules = choose("0.5.14").rules
    assert state.slots_a_request(rules, eagle(3), "Qwen3_5MoeForCausalLM", {}) == 3
    assert state.slots_a_request(choose("0.5.20").rules, eagle(3), "Qwen3_5MoeForCausalLM", {}) == 5
    skip = {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}
    assert state.slots_a_request(choose("0.5.23").rules, eagle(3), "Qwen3NextForCausalLM", skip) == 4


def test_slots_that_are_given() -> None:
    """`--max-mamba-cache-size` sets them; the states of a verification are still paid for."""
    found = solved("0.5.17", eagle(3, state_slots=100), 29.0 * GIB)
    assert found.slots == 100
    assert found.state_taken == P * (20 + 1) * 4 + 101 * P
    assert solved("0.5.14", eagle(3, state_slots=100), 29.0 * GIB).state_taken == P * 20 * 4 + 100 * P


def test_replay_keeps_no_states_for_verification() -> None:
    rules, settings = choose("0.5.17").rules, eagle(3, replayssm=True)
    cost = state.cost_of(rules, settings, NEXT, "Qwen3NextForCausalLM", {})
    assert cost.draft_tokens == 0
    assert cost.extra == 36 * 4 * (32 * 128 * 2 + 16 * 128 * 2 + 32 * 4 * 2)
    later = state.cost_of(choose("0.5.23").rules, settings, NEXT, "Qwen3NextForCausalLM", {})
    assert later.extra == 0
    assert later.fixed == 49 * 36 * 16 * (2 * (32 * 128 * 2 + 16 * 128 * 2) + 32 * 4)


@given(
    version=st.sampled_from([each.version for each in releases()]),
    budget=st.floats(0.5, 120.0),
    steps=st.integers(1, 12),
    q=st.integers(1, 5),
    more=st.floats(0.01, 5.0),
)
def test_a_larger_budget_is_never_worse(version: str, budget: float, steps: int, q: int, more: float) -> None:
    less = solved(version, eagle(steps), budget * GIB, q=q)
    richer = solved(version, eagle(steps), (budget + more) * GIB, q=q)
    assert richer.slots is not None
    assert less.slots is not None
    assert richer.slots >= less.slots
    assert richer.running >= less.running or not less.starts


@given(budget=st.floats(5.0, 120.0), steps=st.integers(1, 12), radix=st.booleans())
def test_tokens_and_requests_never_grow_with_depth_where_the_rule_says_so(
    budget: float, steps: int, radix: bool
) -> None:
    """Up to 0.5.12 always; later, tokens where slots are given by the running limit, requests always."""
    for version in ("0.5.12", "0.5.14", "0.5.17"):
        shallow, deep = (
            solved(version, eagle(k, radix=radix), budget * GIB, q=5 if radix else 1) for k in (steps, steps + 1)
        )
        assert shallow.slots is not None
        assert deep.slots is not None
        assert deep.slots <= shallow.slots
        if version == "0.5.12" or not radix:
            assert deep.tokens <= shallow.tokens


@given(
    version=st.sampled_from([each.version for each in releases()]),
    budget=st.floats(8.0, 120.0),
    steps=st.integers(0, 8),
    q=st.sampled_from([1, 3, 5]),
)
def test_the_budget_of_given_pools_gives_them_again(version: str, budget: float, steps: int, q: int) -> None:
    settings = eagle(steps, radix=q > 1) if steps else Settings(radix=q > 1)
    rules, cell = choose(version).rules, Cell(bytes=20_480, target=20_480)
    cost = state.StateCost(slot=P, per_request=q, draft_tokens=settings.draft_tokens)
    found = pools.solve(rules, settings, cell, cost, budget * GIB, 262_144)
    if found.starts:
        low, high = pools.budget_for(rules, settings, cell, cost, found)
        assert low - 1 <= budget * GIB < high + 1


@pytest.mark.parametrize("version", ["0.5.12", "0.5.14", "0.5.23"])
@pytest.mark.parametrize("spread", [0.02, 0.1, 0.7])
def test_bounds_cover_every_budget_between_them(version: str, spread: float) -> None:
    """Tokens fall where memory buys one state slot more: neither end of the budget need have the least of them."""
    gib = float(GIB)
    case = Case(
        rules=choose(version).rules,
        others=(),
        settings=Settings(algorithm="EAGLE", steps=3, draft_tokens=4, fraction=0.8, strategy="extra_buffer"),
        model=Anatomy(
            architecture="Qwen3NextForCausalLM",
            context=262_144,
            layers=48,
            full=Heads(layers=12, kv_heads=2, key=256, value=256),
            state=NEXT,
            weights=Tensors(bytes=0),
        ),
        draft=None,
        budget=Budget(
            pre=138 * gib, target=80 * gib, draft=0.0, spread=spread * gib, pre_spread=0.0, draft_spread=0.0
        ),
        fraction=0.8,
        fraction_spread=0.0,
        extra_spread=0.0,
        wanted=(gib, False),
        environment={},
    )
    found = judge(Arm(3), case)
    least, most = found.low.kv_tokens, found.high.kv_tokens
    assert least is not None
    assert most is not None
    steps = 400
    budgets = (case.available() + spread * gib * (2 * step / steps - 1) for step in range(steps + 1))
    tokens = [case.pools(budget).tokens for budget in budgets]
    assert least <= min(tokens)
    assert max(tokens) <= most
    assert most - least < 1.1 * (max(tokens) - min(tokens)) + 200  # and no wider than need be
