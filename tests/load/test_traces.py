"""Traces of services: what their forms say, and what of them cannot be used."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.errors import BadInputError
from draftmark.load import traces
from draftmark.load.traces import RequestTrace, TraceRequest, read_trace

MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]},
    {"timestamp": 3052, "input_length": 1024, "output_length": 26, "hash_ids": [46, 47]},
    {"timestamp": 4500, "input_length": 7, "output_length": 1, "hash_ids": [9]},
]
BAILIAN = {
    "chat_id": 159,
    "parent_chat_id": -1,
    "timestamp": 61.114,
    "input_length": 40,
    "output_length": 132,
    "type": "text",
    "turn": 1,
    "hash_ids": [1089, 1090, 1091],
}
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def read(path: Path, *lines: object, take: int | None = None) -> RequestTrace:
    file = path / "trace"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return read_trace(file, take=take)


def test_mooncake(tmp_path: Path) -> None:
    found = read(tmp_path, *MOONCAKE)
    assert (found.form, found.block_tokens, found.source) == ("Mooncake", 512, "trace")
    assert found.requests[1] == TraceRequest(3.052, 1024, 26, (46, 47))
    assert found.times == (0.0, 3.052, 4.5)
    assert found.about == "times and lengths of a Mooncake trace"


def test_bailian_counts_in_seconds_and_small_blocks(tmp_path: Path) -> None:
    found = read(tmp_path, BAILIAN)
    assert (found.form, found.block_tokens) == ("Bailian", 16)
    assert found.requests == (TraceRequest(61.114, 40, 132, (1089, 1090, 1091)),)


def test_burstgpt_and_its_failures(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        BURST,
        "5,ChatGPT,472,18,490,Conversation log",
        "45,ChatGPT,1087,0,1087,Conversation log",
        "118.5,GPT-4,417.0,276,693,API log\r",
        "",
    )
    assert found.form == "BurstGPT"
    assert found.requests == (TraceRequest(5.0, 472, 18), TraceRequest(118.5, 417, 276))
    assert found.about == "times and lengths of a BurstGPT trace, 1 without a prompt or an answer left out"


def test_burstgpt_with_more_columns(tmp_path: Path) -> None:
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
    assert read(tmp_path, header, "7,a-b,1.5,GPT-4,10,20,30,x").requests == (TraceRequest(7.0, 10, 20),)


def test_azure(tmp_path: Path) -> None:
    found = read(tmp_path, AZURE, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109")
    assert found.form == "Azure"
    assert found.times[1] - found.times[0] == pytest.approx(4.314579, abs=1e-6)
    assert [(r.prompt_tokens, r.output_tokens) for r in found.requests] == [(374, 44), (396, 109)]
    zoned = read(tmp_path, AZURE, "2024-05-10 00:00:00.009930+00:00,2162,5", "2024-05-10 02:00:00.5+02:00,1,1")
    assert zoned.times[1] - zoned.times[0] == pytest.approx(0.49007, abs=1e-6)


def test_the_first_so_many_and_no_more(tmp_path: Path) -> None:
    assert len(read(tmp_path, *MOONCAKE, take=2).requests) == 2
    assert len(read(tmp_path, MOONCAKE[0], "no JSON", take=1).requests) == 1
    assert len(read(tmp_path, *MOONCAKE, take=9).requests) == 3


def test_too_many_to_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_REQUESTS", 2)
    with pytest.raises(BadInputError, match="more than 2 requests") as caught:
        read(tmp_path, *MOONCAKE)
    assert "--requests N" in caught.value.next_step
    assert len(read(tmp_path, *MOONCAKE, take=3).requests) == 3


def test_times_out_of_order_are_put_in_order_and_told(tmp_path: Path) -> None:
    found = read(tmp_path, MOONCAKE[1], MOONCAKE[0], MOONCAKE[2])
    assert found.times == (0.0, 3.052, 4.5)
    assert found.about.endswith("1 out of order put in order")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "Expected `object`"),
        ('{"timestamp": 0, "input_length": 1', "JSON"),
        ({"timestamp": 0, "input_length": 5}, "output_length"),
        ({"timestamp": "0", "input_length": 5, "output_length": 5}, "Expected `float`, got `str`"),
        ({"timestamp": -1, "input_length": 5, "output_length": 5}, "the time is -1; it must be 0 or later"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 5}', "JSON"),
        ('{"timestamp": 1e999, "input_length": 5, "output_length": 5}', ""),
        ({"timestamp": 0, "input_length": -5, "output_length": 5}, "input_length is -5"),
        ({"timestamp": 0, "input_length": 5, "output_length": 10**7}, "output_length is 10000000"),
        ('{"timestamp": 0, "input_length": ' + "9" * 5000 + ', "output_length": 5}', ""),
        ({"timestamp": 0, "input_length": 5.5, "output_length": 5}, "Expected `int`, got `float`"),
        ({"timestamp": 0, "input_length": 513, "output_length": 5, "hash_ids": [1, 2, 3]}, "3 hash_ids for 513"),
        ({"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": ["a"]}, "Expected `int`"),
        ("[" * 100_000, ""),
        (BURST, "JSON"),
    ],
)
def test_a_line_of_json_that_is_no_request(tmp_path: Path, line: object, why: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read(tmp_path, MOONCAKE[0], "", line)
    assert caught.value.what.startswith(f"{tmp_path / 'trace'}, line 3: ")
    assert why in caught.value.what
    assert "Mooncake" in caught.value.next_step
    assert all(len(shown) <= 120 for shown in caught.value.evidence)


@pytest.mark.parametrize(
    ("header", "row", "why"),
    [
        (BURST, "nan,m,1,1,2,x", "the time is 'nan', not a number"),
        (BURST, "inf,m,1,1,2,x", "the time is 'inf', not a number"),
        (BURST, "1e999,m,1,1,2,x", "not a number"),
        (BURST, "-3,m,1,1,2,x", "it must be 0 or later"),
        (BURST, "1_0,m,1,1,2,x", "not a number"),
        (BURST, "٣,m,1,1,2,x", "not a number"),
        (BURST, "3,m,1.5,1,2,x", "request tokens is '1.5', not a whole number"),
        (BURST, "3,m,-1,1,2,x", "request tokens is -1"),
        (BURST, "3,m,1", "3 columns, but 'response tokens' is missing"),
        (BURST, ",,,,,", "the time is '', not a number"),
        (BURST, '"3,m,1,1', "not CSV"),
        (AZURE, "yesterday,1,1", "'yesterday' is no date"),
        (AZURE, "2023-11-16 18:15:46,,1", "contexttokens is '', not a number"),
        (AZURE, "x" * 200_000 + ",1,1", ""),
    ],
)
def test_a_row_that_is_no_request(tmp_path: Path, header: str, row: str, why: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read(tmp_path, header, row)
    assert ", line 2: " in caught.value.what
    assert why in caught.value.what


@pytest.mark.parametrize("header", ["a,b,c", "Timestamp,Model", "hello", '"open', "\rx\ry"])
def test_a_header_that_is_not_known(tmp_path: Path, header: str) -> None:
    with pytest.raises(BadInputError, match="line 1: ") as caught:
        read(tmp_path, header, "1,2,3")
    assert "BurstGPT" in caught.value.next_step


def test_files_that_are_no_trace(tmp_path: Path) -> None:
    for lines, why in (
        ([""], "is empty"),
        ([BURST], "has no requests"),
        ([BURST, "1,m,5,0,5,x"], "has no requests"),
    ):
        with pytest.raises(BadInputError, match=why):
            read(tmp_path, *lines)
    with pytest.raises(BadInputError, match="there is no trace file"):
        read_trace(tmp_path / "none")
    with pytest.raises(BadInputError, match="is a directory, not a trace file"):
        read_trace(tmp_path)
    (tmp_path / "wide").write_bytes(BURST.encode("utf-16"))
    with pytest.raises(BadInputError, match="UTF-16"):
        read_trace(tmp_path / "wide")
    (tmp_path / "zeros").write_bytes(bytes(100))
    with pytest.raises(BadInputError, match="a zero byte"):
        read_trace(tmp_path / "zeros")


numbers = (
    st.integers(-5, 10**8) | st.floats() | st.text(max_size=5) | st.none() | st.lists(st.integers(), max_size=3)
)


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys((*BAILIAN, "x"), numbers)), max_size=5))
def test_any_json_lines_are_a_trace_or_are_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    held(tmp_path_factory.mktemp("any") / "any", "\n".join(json.dumps(row) for row in rows).encode())


@settings(deadline=None)
@given(st.sampled_from([BURST, AZURE, ""]), st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_trace_or_are_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, header: str, data: bytes
) -> None:
    held(tmp_path_factory.mktemp("any") / "any", header.encode() + b"\n" + data)


def held(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        found = read_trace(path)
    except BadInputError as error:
        assert error.next_step  # noqa: PT017
        return
    assert found.requests
    assert all(a <= b for a, b in pairwise(found.times))
    assert all(math.isfinite(at) and at >= 0 for at in found.times)
    assert all(r.prompt_tokens > 0 and r.output_tokens > 0 for r in found.requests)
