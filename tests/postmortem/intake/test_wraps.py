"""Logs as a terminal of some width shows them, and what only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.postmortem.intake import Hints, read_bytes
from draftmark.postmortem.model import Line

PLACE = "(EngineCore pid=817) ERROR 07-20 08:00:44 [core.py:1022] "
MODULES = (
    "engine/core",
    "engine/utils",
    "executor/abstract",
    "worker/gpu_worker",
    "core/kv_cache_utils",
    "cli/main",
)
FRAMES = [
    f'{PLACE}  File "/opt/venv/lib/python3.12/site-packages/vllm/v1/{module}.py", line {len(module)}, in get_{n}'
    for n, module in enumerate(MODULES)
]
SHORT = [f"(APIServer pid=1) INFO 07-20 08:00:{n:02} [launcher.py:{n}] Route /v{n}" for n in range(10)]
LAST = (
    f"{PLACE}ValueError: To serve at least one request with the model's max seq len (100000), 4.26 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (4.25 GiB). Try increasing `gpu_memory_utilization`"
)
LOG = [*SHORT, f"{PLACE}Traceback (most recent call last):", *FRAMES, LAST]


def read(lines: list[str], newline: str = "\n") -> tuple[Line, ...]:
    return read_bytes("service.log", newline.join(lines).encode(), hints=Hints()).lines


def rows(lines: list[str], width: int) -> list[str]:
    return [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("width", [100, 120, 131])
def test_lines_that_a_terminal_cut_are_whole_again(width: int, newline: str) -> None:
    whole, cut = read(LOG), read(rows(LOG, width), newline)
    assert [line.text for line in cut] == [line.text for line in whole]
    assert [line.actor for line in cut] == [line.actor for line in whole]


def test_the_number_and_the_raw_text_are_the_first_rows() -> None:
    cut = rows(LOG, 100)
    lines = read(cut)
    last = lines[-1]
    assert last.number == cut.index(LAST[:100]) + 1 == 24
    assert last.raw == LAST[:100]
    assert last.text.endswith("available KV cache memory (4.25 GiB). Try increasing `gpu_memory_utilization`")
    assert lines[0].number == 1


def test_a_line_that_only_chances_to_be_as_long_stays_alone() -> None:
    chance = f"{PLACE}" + "x" * (100 - len(PLACE))
    lines = read([*rows(LOG, 100), chance, "    return f()", chance, f"{PLACE}more", chance, "", "z"])
    assert [line.text for line in lines[-7:]] == ["x" * 43, "    return f()", "x" * 43, "more", "x" * 43, "", "z"]


def test_a_longer_line_anywhere_says_that_no_terminal_cut_the_lines() -> None:
    cut = [*rows(LOG, 100), SHORT[0] + "y" * 100]
    assert [line.number for line in read(cut)] == list(range(1, len(cut) + 1))


@pytest.mark.parametrize(
    "lines",
    [
        [line[:100] for line in LOG * 3],  # cut off, not wrapped: what follows is a line of its own
        [*SHORT, *["|" + "-" * 98 + "|", "|" + " 1 " * 32 + "  |"] * 10],  # a table
        [*SHORT, *("".join(chr(97 + (n * k) % 26) for k in range(76)) for n in range(20))],  # a block of equal rows
        [*SHORT, *[FRAMES[0], "  and a second line of it"] * 10],  # one message again and again
        rows([LAST], 100),  # too little to tell by
        rows([f"a b c {line}" for line in LOG], 100),  # no prefixes to tell by
    ],
    ids=["cut off", "table", "block", "repeated", "short", "no prefixes"],
)
def test_other_lines_of_one_length_stay_as_they_are(lines: list[str]) -> None:
    assert [line.number for line in read(lines)] == list(range(1, len(lines) + 1))


@given(
    st.lists(st.sampled_from([*LOG, "", "x" * 100, "^" * 100, "\x1b[0m", "é" * 50, "0: ", "[" * 100]), max_size=80)
)
def test_no_text_is_lost_or_told_twice(lines: list[str]) -> None:
    cut = rows(lines, 100)
    numbers = [line.number for line in read(cut) if line.text]
    assert numbers == sorted(set(numbers))
    told = sum(line.text.count("ValueError: To serve") for line in read(cut))
    assert told <= sum("ValueError: To serve" in line for line in lines)
