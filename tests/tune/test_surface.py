"""Recorded figures as files, and the search against them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmark.errors import BadInputError
from draftmark.tune.surface import document, replay
from draftmark.tune.surface_file import Surface, read

FOUNDING = Path(__file__).parents[1] / "data/surfaces/founding.json"
TOLD = {0: 123, 1: 186, 2: 234, 4: 277, 5: 282}


def parsed(data: Any) -> Surface:
    return read(json.dumps(data), "test.json")


def figures(surface: Surface) -> dict[int, dict[int, float]]:
    return {depth: dict(entry.tok_s) for depth, entry in surface.entries.items() if entry.refused is None}


# --- the founding case ------------------------------------------------------------------------------------


def founding() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FOUNDING.read_text())
    return found


@pytest.mark.no_cover
@pytest.mark.parametrize("noise", [None, 0.005, 0.01, 0.02, 0.05])
@pytest.mark.parametrize("baseline", [1, 2, 4])
def test_the_founding_case(noise: float | None, baseline: int) -> None:
    data = founding() | {"baseline": baseline} | ({} if noise is None else {"noise": noise})
    done = replay(parsed(data))
    assert done.choice.depth in (4, 5)
    assert len(done.tried) <= 3
    assert 10 not in {step.depth for step in done.tried}


@pytest.mark.parametrize("depths", [(0, 1, 2, 3, 4), (0, 1, 2, 4, 5), (0, 2, 3, 4, 5), (0, 1, 3, 4, 5)])
def test_the_founding_figures_at_other_depths(depths: tuple[int, ...]) -> None:
    data = {str(k): y for k, y in zip(depths, TOLD.values(), strict=True)} | {"10": {"fits": False}}
    done = replay(parsed(data))
    assert done.choice.depth in depths[3:]
    assert len(done.tried) <= 3


@pytest.mark.parametrize("slope", [1.5, 2, 3, 6])
@pytest.mark.parametrize("deepest", [4, 6, 8])
def test_off_is_best_is_found_in_two_restarts(slope: float, deepest: int) -> None:
    """Also where each depth loses so little that the next shallower one might be level."""
    done = replay(parsed({str(k): 100 - slope * k for k in range(deepest + 1)}))
    assert done.choice.depth == 0
    assert len(done.tried) <= 2


def test_its_document() -> None:
    done = replay(parsed(founding()))
    told = json.loads(json.dumps(document(done, "founding.json"), allow_nan=False))
    assert told["schema"] == "draftmark.tune/1"
    assert told["restarts"] == len(told["steps"]) <= 3
    assert told["exit_status"] == 10
    assert told["choice"]["recommended"] in ("d4", "d5")
    assert told["choice"]["latency"] in ("d4", "d5")
    by = {arm["depth"]: arm for arm in told["arms"]}
    assert by[10]["status"] == "refused"
    assert by[10]["because"] == "nothing is left for KV"
    assert by[10]["latency"] is None
    assert {arm["status"] for arm in told["arms"]} == {"measured", "predicted", "refused"}
    for arm in told["arms"]:
        if arm["status"] == "predicted":
            assert arm["latency"]["tok_s_low"] < arm["latency"]["tok_s"] < arm["latency"]["tok_s_high"]
        if arm["status"] == "measured":
            assert arm["latency"]["tok_s"] == {1: 123, 4: 277, 5: 282}[arm["depth"]]
    for step in told["steps"]:
        assert step["error"]["1"] == pytest.approx(
            step["predicted"]["1"]["tok_s"] / step["measured"]["1"] - 1.0, abs=1e-3
        )


# --- forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        {"off": 100, "2": 150},
        {"0": {"tok_s": 100}, "2": {"tok_s": 150, "fits": True}},
        {"d0": {"tok_s": {"1": 100}}, "depth 2": {"tok_s": {"c=1": "150"}}},
        {"depths": {"0": {"tok_s": {"1": 100}}, "2": {"tok_s": {"1": 150}}}, "concurrency": [1]},
        {"arms": [{"depth": 0, "tok_s": 100}, {"depth": 2, "tok_s": 150}]},
        {"arms": [{"arm": "off", "tok_s": 100}, {"arm": "d2", "tok_s": 150}], "concurrency": 1},
        [{"depth": "off", "tok_s": [100]}, {"depth": 2, "output_tok_s": 150}],
        {"depths": [0, 2], "0": 100, "2": 150, "noise": 2, "about": "anything"},
        {"surface": {"0": {"tok_s": {"chat@1": 100}}, "2": {"tok_s": {"1": 150, "8": -1}}}},
    ],
)
def test_many_forms_are_one_surface(data: Any) -> None:
    surface = parsed(
        [dict(e, tok_s=100) if e["depth"] == "off" else e for e in data] if isinstance(data, list) else data
    )
    assert figures(surface) == {0: {1: 100.0}, 2: {1: 150.0}}
    assert surface.baseline == 0
    assert (surface.latency, surface.throughput) == (1, None)


@pytest.mark.parametrize(
    "entry",
    [None, False, "out of memory", {"fits": False}, {"fits": "no"}, {}, {"fit": {"fits": False}, "tok_s": 5}],
)
def test_what_does_not_fit_is_never_started(entry: Any) -> None:
    done = replay(parsed({"0": 100, "1": 130, "8": entry}))
    assert 8 not in {step.depth for step in done.tried}
    assert done.refused[8]


def test_a_result_document_of_tune_is_a_surface() -> None:
    path = Path(__file__).parents[1] / "data/sglang/h200/nextn-0.92.result.json"
    surface = read(path.read_bytes(), path.name)
    assert figures(surface)[0] == {1: 252.01, 32: 2177.2}
    assert surface.entries[10].refused is not None
    assert surface.entries[5].running == 48
    assert (surface.latency, surface.throughput) == (1, 32)
    done = replay(surface)
    assert done.choice.depth in (3, 4, 5)
    assert len(done.tried) <= 4


@pytest.mark.parametrize(
    ("told", "latency", "throughput"),
    [
        (None, 1, 32),
        ("both", 1, 32),
        ("latency", 1, None),
        ("throughput", None, 32),
        (8, None, 8),
        ("tok_s@8", None, 8),
        ({"latency": 1, "throughput": 8}, 1, 8),
        ("fast", 1, 32),
    ],
)
def test_objectives(told: Any, latency: int | None, throughput: int | None) -> None:
    surface = parsed({"objective": told, "0": {"tok_s": {"1": 1, "8": 5, "32": 9}}})
    assert (surface.latency, surface.throughput) == (latency, throughput)


@pytest.mark.parametrize(
    ("told", "noise"),
    [(0.02, 0.02), (3, 0.03), ("0.01", 0.01), ({"1": 0.01, "8": 0.04}, 0.04), (-1, 0.03), ("x", 0.03)],
)
def test_noise_is_a_share_or_percent(told: Any, noise: float) -> None:
    assert parsed({"noise": told, "0": 1.0}).noise == pytest.approx(noise)


@pytest.mark.parametrize(
    "told",
    [
        {"histogram": [100, 200, 300]},
        {"histogram": {"0": 100, "1": 200, "2": 300}},
        {"histogram": {"1": [60, 100, 100], "8": [40, 100, 200]}},
        {"histogram": [0, 100, 200, 300]},
        {"num_drafts": 600, "accepted_per_pos": [500, 300]},
    ],
)
def test_histograms_in_many_forms(told: dict[str, Any]) -> None:
    evidence = parsed({"0": 1.0, "2": {"tok_s": 2.0, **told}}).entries[2].acceptance
    assert evidence is not None
    assert evidence.reached == (600, 500, 300)


def test_a_histogram_of_shares_counts_as_some_rounds_and_says_so() -> None:
    surface = parsed({"0": 1.0, "2": {"tok_s": 2.0, "histogram": [0.2, 0.3, 0.5]}})
    evidence = surface.entries[2].acceptance
    assert evidence is not None
    assert evidence.reached == pytest.approx((500, 400, 250))
    assert any("shares" in line for line in surface.assumed)


@pytest.mark.parametrize("told", [{"accept_len": 2.4}, {"accept_length": {"1": 2.3, "8": 2.5}}])
def test_accept_lengths(told: dict[str, Any]) -> None:
    evidence = parsed({"0": 1.0, "2": {"tok_s": 2.0, **told}}).entries[2].acceptance
    assert evidence is not None
    assert evidence.length == pytest.approx(2.4)


def test_what_is_assumed_is_said() -> None:
    surface = parsed({"3": {"tok_s": 100}, "5": {"tok_s": 150}, "9": {}})
    assert surface.baseline == 3
    assert any("baseline" in line and "depth 3" in line for line in surface.assumed)
    assert any("concurrency 1" in line for line in surface.assumed)
    assert any("3%" in line for line in surface.assumed)
    assert any("depth 9" in line for line in surface.assumed)


@pytest.mark.parametrize(
    ("told", "experts"),
    [({"total": 256, "active": 8}, (256, 8)), ([64, 4], (64, 4)), ({"total": 4}, None), ([4, 64], None)],
)
def test_a_mixture_of_experts(told: Any, experts: tuple[int, int] | None) -> None:
    surface = parsed({"experts": told, "0": {"tok_s": {"8": 1}}, "2": {"tok_s": {"8": 2}}})
    assert surface.experts == experts
    assert replay(surface).choice.depth == 2


@pytest.mark.parametrize(
    ("told", "minutes"), [({"minutes": 3}, 3.0), ({"start_s": 90}, 1.5), ({"minutes": -1}, None)]
)
def test_minutes_of_a_restart(told: dict[str, Any], minutes: float | None) -> None:
    surface = parsed({"0": 100, "2": 150, **told})
    assert surface.minutes == minutes
    downtime = document(replay(surface), "x")["downtime_s"]
    assert downtime == (None if minutes is None else 60.0 * minutes)


def test_trees_are_outside_the_chain_rule() -> None:
    data = {"0": 100, "2": {"tok_s": 150, "histogram": [10, 20, 30]}, "4": {"tok_s": 160}}
    bases = []
    for topk in (1, 4):
        told = document(replay(parsed(data | {"topk": topk})), "x")
        bases.append({arm["depth"]: arm["accept_len_basis"] for arm in told["arms"]}[2])
    assert bases == ["counted", "told"]


def test_running_requests_are_read_everywhere() -> None:
    surface = parsed(
        {
            "max_running_requests": {"0": 21, "2": 17},
            "0": {"tok_s": 5},
            "2": {"tok_s": 9},
            "4": {"tok_s": 9, "max_running_requests": 12},
            "6": {"tok_s": 9, "limits": {"max_running_requests": 11}},
        }
    )
    assert [e.running for e in surface.entries.values()] == [21, 17, 12, 11]


def test_a_depth_without_the_figure_that_decides_is_left_out() -> None:
    surface = parsed({"0": {"tok_s": {"1": 1, "8": 5}}, "2": {"tok_s": {"1": 2}}, "4": {"tok_s": {"1": 3, "8": 9}}})
    assert surface.entries[2].refused == "nothing is recorded at concurrency 8"
    assert replay(surface).choice.depth == 4


# --- what cannot be used ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "{}",
        "null",
        "17",
        '"text"',
        "[1, 2]",
        '{"a": 1}',
        '{"0": {"fits": false}}',
        '{"0": {"tok_s": NaN}}',
        '{"0": {"tok_s": -1}}',
        '{"0": {"tok_s": 1e999}}',
        '{"4": 1, "d4": 2}',
        '{"300": 1}',
        "[" * 100_000,
        '{"0": ' + "9" * 5000 + "}",
        '{"depths": {"0": {"tok_s": []}}}',
    ],
)
def test_what_is_no_surface_is_one_error(text: str) -> None:
    with pytest.raises(BadInputError) as error:
        read(text, "bad.json")
    assert error.value.exit_status == 2
    assert "bad.json" in error.value.what
    assert "\n" not in error.value.what


def test_bytes_that_are_no_text_are_an_error() -> None:
    with pytest.raises(BadInputError):
        read(b"\xff\xfe\x00{", "bad.json")


_LEAF = st.none() | st.booleans() | st.integers(-5, 300) | st.floats(allow_nan=False) | st.text(max_size=6)
_VALUE = st.recursive(
    _LEAF, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=6), v, max_size=4)
)
_KEYS = st.sampled_from(
    [
        "fits",
        "tok_s",
        "histogram",
        "accept_len",
        "max_running_requests",
        "drafts",
        "accepted_per_pos",
        "limits",
        "fit",
    ]
)
_TOP = st.sampled_from(["baseline", "objective", "concurrency", "noise", "topk", "minutes", "tie_margin", "depths"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.integers(0, 12).map(str), st.dictionaries(_KEYS, _VALUE, max_size=5) | _LEAF, max_size=5),
    st.dictionaries(_TOP, _VALUE, max_size=4),
)
def test_any_file_is_a_surface_or_an_error(depths: dict[str, Any], top: dict[str, Any]) -> None:
    try:
        surface = parsed(depths | top)
    except BadInputError:
        return
    told = document(replay(surface), "any.json")
    json.dumps(told, allow_nan=False)
    assert {arm["depth"] for arm in told["arms"] if arm["status"] == "measured"} == {
        surface.baseline,
        *(step["depth"] for step in told["steps"]),
    }


@pytest.mark.parametrize(
    ("top", "entry", "said"),
    [
        ({"noise": -1}, {}, "noise '-1'"),
        ({"noise": 500}, {}, "noise '500'"),
        ({"tie_margin": 5}, {}, "tie_margin '5'"),
        ({"minutes": -3}, {}, "takes no time"),
        ({"experts": {"total": 0, "active": 8}}, {}, "experts"),
        ({"concurrency": 0}, {}, "concurrency '0'"),
        ({"concurrency": [1, 8]}, {"tok_s": [120]}, "1 figures for 2 concurrencies"),
        ({}, {"max_running_requests": -4}, "depth 2: max_running_requests '-4'"),
        ({}, {"accept_len": 9}, "more than its drafts allow"),
        ({}, {"histogram": [1, 2, 3, 4]}, "not one of its 2 drafts"),
        ({}, {"histogram": [0, 0, 0]}, "not one of its 2 drafts"),
    ],
)
def test_what_is_told_and_not_used_is_said(top: dict[str, Any], entry: dict[str, Any], said: str) -> None:
    surface = parsed({"depths": {"0": {"tok_s": {"1": 100}}, "2": {"tok_s": 120, **entry}}, **top})
    assert any(said in line for line in surface.assumed)
    assert surface.entries[2].acceptance is None


def test_what_is_no_depth_is_said_and_minus_one_is_none() -> None:
    surface = parsed({"depths": {"-1": 90, "two": 5, "0": 100, "1": None, "3": {"tok_s": math.nan}}})
    assert list(surface.entries) == [0, 1, 3]
    assert {"'-1' is no depth, and left out", "'two' is no depth, and left out"} <= set(surface.assumed)
    assert surface.entries[3].refused == "nothing is recorded"
