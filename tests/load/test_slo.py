"""Limits as people write them, and which requests meet them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import UsageError
from draftmark.load.slo import Slo, goodput, parse_slo

from .records import record, stream


@pytest.mark.parametrize(
    "words",
    [["ttft:500,tpot:30,e2e:9000"], ["ttft:500", "tpot:30", "e2el:9000"], [" ttft:500 , tpot:30.0", "e2e:9000."]],
)
def test_the_forms(words: list[str]) -> None:
    assert parse_slo(words) == Slo(ttft_ms=500, tpot_ms=30, e2e_ms=9000)


def test_one_limit_is_enough() -> None:
    assert parse_slo(["tpot:.5"]) == Slo(tpot_ms=0.5)


@pytest.mark.parametrize(
    "text",
    ["", "ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:0", "itl:5", "ttft:1,ttft:2", "e2e:1,e2el:2",
     "ttft:1,", "ttft:inf", "ttft:1e400", "ttft:\uff11"],
)  # fmt: skip
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_slo([text])


def test_each_limit_counts() -> None:
    good = record(0.0, stream(11, ttft=0.4, interval=0.02))  # 400 ms, 20 ms a token, 600 ms
    limits = {"ttft_ms": 400.1, "tpot_ms": 20.1, "e2e_ms": 600.1}
    assert Slo(**limits).met_by(good)
    for name, limit in limits.items():
        assert not Slo(**{**limits, name: limit - 0.2}).met_by(good)


def test_waiting_for_a_slot_counts() -> None:
    late = record(1.0, stream(11, ttft=0.4, interval=0.02), intended_at_s=0.5)
    assert not Slo(ttft_ms=500).met_by(late)
    assert not Slo(e2e_ms=700).met_by(late)
    assert Slo(tpot_ms=21).met_by(late)


def test_failures_miss_it_and_what_we_cut_is_not_judged() -> None:
    good = record(0.0, stream(11, ttft=0.4, interval=0.02))
    records = [
        dataclasses.replace(good, warmup=True),
        good,
        record(0.6, [], error="http-500", end_at_s=1.0),
        record(1.0, [], error="cut", end_at_s=2.0),
    ]
    got = goodput(records, Slo(ttft_ms=500))
    assert (got.good, got.requests, got.limits_ms) == (1, 2, {"ttft": 500})
    assert got.req_s == pytest.approx(0.5)
    assert goodput([], Slo(ttft_ms=500)).req_s is None


def test_of_a_whole_answer_the_first_token_is_not_known_to_be_in_time() -> None:
    whole = record(0.0, [], end_at_s=0.3, output_tokens=20)
    assert not Slo(ttft_ms=1000).met_by(whole)
    assert not Slo(tpot_ms=1000).met_by(whole)
    assert Slo(e2e_ms=1000).met_by(whole)
    assert Slo(tpot_ms=1000).met_by(record(0.0, [(0.1, 1.0)]))


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.001, 2), st.booleans()), min_size=1, max_size=20))
def test_a_laxer_limit_never_lowers_goodput(requests: list[tuple[float, float, bool]]) -> None:
    records = [
        record(at, stream(5, ttft=ttft, interval=0.01), error="reset" if failed else None)
        for at, ttft, failed in requests
    ]
    found = [goodput(records, Slo(ttft_ms=limit, e2e_ms=limit * 2)).good for limit in (1.0, 100.0, 1000.0, 1e5)]
    assert found == sorted(found)
    assert found[-1] == sum(not failed for _, _, failed in requests)
