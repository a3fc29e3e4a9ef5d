"""The document: what stands where, and repetitions as one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from draftmark.load.distributions import BINS, course, distributions, histogram
from draftmark.load.journal import Head
from draftmark.load.measurement import measure
from draftmark.load.result import derive

from .records import record, stalled_open_loop, stream
from .test_journal import HEAD, MEASURED, closed, ended

CONTRACT = {
    "requests", "errors", "duration_s", "output_tok_s", "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "accept_len",
    "goodput_req_s", "client",
}  # fmt: skip


def plain(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(document))
    return found


def test_the_contract_of_a_single_level() -> None:
    got = plain(derive(HEAD, MEASURED[:1]))
    assert got["schema"] == "draftmark.bench/1"
    assert set(got) >= CONTRACT
    assert set(got["ttft_ms"]) == {"mean", "p50", "p90", "p95", "p99", "max"}
    assert got["client"]["loop_lag_ms_p99"] == 1.5
    assert got["goodput"] == {
        "limits_ms": {"ttft": 150.0},
        "requests": 30,
        "good": 30,
        "req_s": got["goodput_req_s"],
    }
    assert got["levels"][0]["requests"] == got["requests"] == 30
    assert got["accept_len"] == pytest.approx(3.0)
    assert got["categories"][0]["name"] == "code"
    assert got["chunk_sizes"] == [[2, 30], [3, 180]]
    assert got["intervals"]["ttft_ms.p50"]["low"] < got["ttft_ms"]["p50"] < got["intervals"]["ttft_ms.p50"]["high"]


def test_an_open_loop_has_the_waiting_in_its_headline() -> None:
    got = plain(derive(HEAD, MEASURED[1:2]))
    assert got["loop"] == "open"
    assert got["headline"] == {"ttft": "ttft_intended_ms", "e2e": "e2e_intended_ms"}
    assert got[got["headline"]["e2e"]]["max"] > got["e2e_ms"]["p50"]
    assert got["goodput"]["good"] < got["goodput"]["requests"]
    assert plain(derive(HEAD, MEASURED[:1]))["headline"]["ttft"] == "ttft_ms"


def test_several_levels_have_no_keys_of_one_at_the_top() -> None:
    got = plain(derive(HEAD, MEASURED))
    assert "requests" not in got
    assert got["loop"] is None
    assert [level["concurrency"] for level in got["levels"]] == [1, 4, 2]
    assert got["levels"][2]["stopped_because"] == "stopped by SIGINT"
    assert got["levels"][2]["unsent"] == {"stopped": 2}


def test_repetitions_are_one_level() -> None:
    slower = tuple(
        record(float(i), stream(20, ttft=0.3, interval=0.02), tag=f"bench-{i}", category="code") for i in range(30)
    )
    runs = [MEASURED[0], ended(slower, assumptions=("two",)), ended((*slower, record(31.0, [], error="reset")))]
    got = plain(derive(HEAD, runs))
    assert (got["repeats"], len(got["levels"]), len(got["runs"])) == (3, 1, 3)
    assert got["requests"] == 90
    assert got["errors"] == {"reset": 1}
    assert got["assumptions"] == ["one", "two"]
    assert got["ttft_ms"]["p50"] == pytest.approx((got["runs"][0]["ttft_ms"]["p50"] + 600) / 3)
    assert got["goodput"]["good"] == 30
    assert got["goodput"]["requests"] == 91
    assert got["categories"][0]["requests"] == 90
    low, high = got["intervals"]["ttft_ms.p50"]["low"], got["intervals"]["ttft_ms.p50"]["high"]
    assert low < got["ttft_ms"]["p50"] < high


def test_nothing_that_completed() -> None:
    failed = (record(0.0, [], end_at_s=0.1, error="dns"),)
    got = plain(derive(Head(), [ended(failed)]))
    assert (got["requests"], got["errors"], got["output_tok_s"]) == (0, {"dns": 1}, None)
    assert got["goodput_req_s"] is None
    assert got["intervals"] == {}


# --- pictures ---------------------------------------------------------------------------------------------


def test_a_histogram_holds_every_value_once() -> None:
    got = histogram([float(i % 50) for i in range(1000)] * 2 + [1e6] * 3)
    assert sum(got["counts"]) == 2000
    assert (got["beyond"], got["max"]) == (3, 1e6)
    assert len(got["edges"]) == BINS + 1
    assert got["edges"] == sorted(got["edges"])
    assert (got["edges"][0], got["edges"][-1]) == (0.0, 49.0)


@pytest.mark.parametrize("values", [[5.0], [5.0] * 7, [0.0], [1e9, 1e9 + 1e-7]])
def test_values_that_are_all_alike(values: list[float]) -> None:
    got = histogram(values)
    assert sum(got["counts"]) == len(values)
    assert got["edges"][0] < got["edges"][-1]


def test_a_short_tail_stays_in_the_picture() -> None:
    got = histogram([float(i) for i in range(1000)])
    assert (got["beyond"], got["edges"][-1]) == (0, 999.0)


def test_the_course_of_a_stall() -> None:
    records = stalled_open_loop(120, rate=20.0, slots=4, stall=(2.0, 4.0), answer_s=0.1)
    got = course([*records, record(3.0, [], error="http-500", end_at_s=3.5, intended_at_s=3.0)])
    tokens = sum(rate * got["step"] for rate in got["tok_s"])
    assert tokens == pytest.approx(240)
    at = [got["from"] + got["step"] * (place + 0.5) for place in range(len(got["tok_s"]))]
    still = [place for place, time in enumerate(at) if 2.4 < time < 3.6]
    assert all(got["tok_s"][place] < 10 for place in still)
    assert all(got["running"][place] in (4, 5) for place in still)
    assert max(got["waiting"]) >= 30
    assert got["errors"] == {"http-500": [3.5]}


def test_what_is_drawn() -> None:
    closed_loop = list(closed())
    got = distributions(closed_loop, measure(closed_loop, workload="w", concurrency=1))
    assert set(got["histograms"]) == {"ttft_ms", "tpot_ms", "itl_ms", "chunk_gap_ms", "e2e_ms"}
    records = stalled_open_loop(60, rate=20.0, slots=4, stall=(1, 2), answer_s=0.1)
    got = distributions(records, measure(records, workload="w", concurrency=4))
    assert "ttft_intended_ms" in got["histograms"]
    nothing = distributions([], measure([], workload="w", concurrency=1))
    assert nothing["histograms"] == {}
    assert nothing["course"]["tok_s"] == []
