"""Tracebacks are kept whole, chains in the order of raising, and the ranks that print at once kept apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.postmortem.model import Line
from draftmark.postmortem.tracebacks import Trace, frames_in, read_traces

from .small import line, lines

BEGIN = "Traceback (most recent call last):"
OUTER = '  File "/opt/engine/loop.py", line 12, in run'
INNER = '  File "/opt/engine/model.py", line 99, in forward'
CODE = "    return self.model(x)"
DURING = "During handling of the above exception, another exception occurred:"
DIRECT = "The above exception was the direct cause of the following exception:"


def places(frames: Sequence[str]) -> list[str]:
    """Files and functions, without the source lines behind them."""
    return [frame.partition(" ")[0] for frame in frames]


def texts(trace: Trace) -> list[str]:
    return [raised.text for raised in trace.raised]


def one(*texts_: str) -> Trace:
    traces = read_traces(lines(*texts_))
    assert len(traces) == 1
    return traces[0]


def test_a_plain_one() -> None:
    trace = one(
        "serving", BEGIN, OUTER, CODE, INNER, "    y = x[9]", "       ~^^^", "IndexError: out of range", "bye"
    )
    raised = trace.raised[0]
    assert (raised.type, raised.message, raised.line.number) == ("IndexError", "out of range", 8)
    assert places(raised.frames) == ["/opt/engine/loop.py:run", "/opt/engine/model.py:forward"]
    assert raised.code is not None
    assert raised.code.text.strip() == "y = x[9]"
    assert (trace.order, trace.begin.number, trace.end) == (1, 2, 8)


def test_what_is_quoted_was_not_said() -> None:
    trace = one(BEGIN, OUTER, '    raise ValueError("CUDA out of memory")', "ValueError: other")
    assert trace.inner == {1, 2}


def test_a_type_with_its_module() -> None:
    raised = one(BEGIN, OUTER, CODE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB").raised[
        0
    ]
    assert (raised.type, raised.name) == ("torch.OutOfMemoryError", "OutOfMemoryError")


def test_an_exception_without_a_message() -> None:
    raised = one(BEGIN, OUTER, "    assert n > 0", "AssertionError").raised[0]
    assert (raised.text, raised.message) == ("AssertionError", "")
    assert raised.code is not None


@pytest.mark.parametrize("link", [DURING, DIRECT])
def test_a_chain_is_in_the_order_of_raising(link: str) -> None:
    trace = one(
        BEGIN, INNER, CODE, "KeyError: 'lm_head'", "", link, "", BEGIN, OUTER, CODE, "RuntimeError: load failed"
    )
    assert texts(trace) == ["KeyError: 'lm_head'", "RuntimeError: load failed"]
    assert places(trace.raised[0].frames) == ["/opt/engine/model.py:forward"]
    assert places(trace.raised[1].frames) == ["/opt/engine/loop.py:run"]
    assert trace.end == 10


def test_three_links() -> None:
    trace = one(
        *(BEGIN, INNER, CODE, "OSError: a", "", DURING, ""),
        *(BEGIN, INNER, CODE, "KeyError: b", "", DIRECT, ""),
        *(BEGIN, INNER, CODE, "ValueError: c"),
    )
    assert texts(trace) == ["OSError: a", "KeyError: b", "ValueError: c"]


def test_one_after_the_other_is_two() -> None:
    traces = read_traces(lines(BEGIN, OUTER, CODE, "KeyError: 1", "INFO: on", BEGIN, OUTER, CODE, "EOFError"))
    assert [texts(trace) for trace in traces] == [["KeyError: 1"], ["EOFError"]]


def test_ranks_that_print_at_once_are_kept_apart() -> None:
    """Line by line in turns, each with the prefix of its rank."""
    rows = []
    for zero, first in zip(
        (BEGIN, INNER, CODE, "RuntimeError: rank zero"), (BEGIN, OUTER, CODE, "EOFError: rank one"), strict=True
    ):
        rows += [line(zero, actor="TP0"), line(first, actor="TP1")]
    traces = read_traces(rows)
    assert [texts(trace) for trace in traces] == [["RuntimeError: rank zero"], ["EOFError: rank one"]]
    assert places(traces[0].raised[0].frames) == ["/opt/engine/model.py:forward"]


def test_writers_of_a_shared_journal_are_kept_apart() -> None:
    rows = [
        line(BEGIN, ident="vllm"),
        line(BEGIN, ident="backup"),
        line(OUTER, ident="vllm"),
        line('  File "/usr/bin/backup", line 1, in main', ident="backup"),
        line("PermissionError: no", ident="backup"),
        line("ValueError: yes", ident="vllm"),
    ]
    assert [texts(trace) for trace in read_traces(rows)] == [["ValueError: yes"], ["PermissionError: no"]]


def test_continuation_lines_without_a_prefix_belong_to_the_last_one() -> None:
    """SGLang's logger stamps the first line only."""
    rows = [line("Scheduler hit an exception: " + BEGIN, actor="TP3"), *lines(INNER, CODE, "KeyError: 7")]
    trace = read_traces(rows)[0]
    assert texts(trace) == ["KeyError: 7"]
    assert trace.begin.actor == "TP3"


def test_traffic_in_between_does_not_break_it() -> None:
    other = [line("Decode batch, #running-req: 3, #token: 9", actor="TP1") for _ in range(30)]
    rows = [line(BEGIN, actor="TP0"), line(INNER, actor="TP0"), *other, line("KeyError: 7", actor="TP0")]
    assert texts(read_traces(rows)[0]) == ["KeyError: 7"]


def test_one_that_never_ends_is_given_up() -> None:
    rows = [line(BEGIN), line(INNER), *[line("progress 1 of 2") for _ in range(2000)], line("KeyError: late")]
    assert read_traces(rows) == []


def test_a_doubled_first_line_is_one_traceback() -> None:
    """A logger that writes the header, and the exception's own."""
    assert texts(one("Scheduler hit an exception: " + BEGIN, BEGIN, OUTER, CODE, "KeyError: 7")) == ["KeyError: 7"]


def test_doubled_lines_give_one_exception() -> None:
    doubled = [text for text in (BEGIN, OUTER, CODE, "KeyError: 7") for _ in range(2)]
    trace = one(*doubled)
    assert texts(trace) == ["KeyError: 7"]
    assert trace.raised[0].more == []


def test_a_message_of_several_lines() -> None:
    trace = one(
        BEGIN, OUTER, CODE, "RuntimeError: Prefill out of memory.", "Try to allocate 8 tokens.", "Available: 3"
    )
    assert [more.text for more in trace.raised[0].more] == ["Try to allocate 8 tokens.", "Available: 3"]


def test_a_message_ends_at_the_next_record() -> None:
    trace = one(BEGIN, OUTER, CODE, "RuntimeError: first", "detail", "[2026] serving", "unrelated")
    assert [more.text for more in trace.raised[0].more] == ["detail"]


def test_a_message_is_not_endless() -> None:
    trace = one(BEGIN, OUTER, CODE, "RuntimeError: first", *(f"row {n}" for n in range(500)))
    assert len(trace.raised[0].more) < 50


def test_a_stamped_line_is_no_further_line_of_a_message() -> None:
    rows = [*lines(BEGIN, OUTER, CODE, "RuntimeError: first"), line("serving again", at=3)]
    assert read_traces(rows)[0].raised[0].more == []


@pytest.mark.parametrize("text", ["INFO: on", "Process Process-3:", "WARNING: low", "two words: here", "7: seven"])
def test_what_is_no_exception(text: str) -> None:
    assert texts(one(BEGIN, OUTER, CODE, text, "ValueError: real")) == ["ValueError: real"]


def test_the_middle_of_one_alone_is_none() -> None:
    """A log that was cut begins in one: what has no beginning cannot be placed."""
    assert read_traces(lines(INNER, CODE, "KeyError: 7")) == []


def test_a_header_alone_is_none() -> None:
    assert read_traces(lines(BEGIN, OUTER, CODE)) == []
    assert read_traces([]) == []


def test_of_thousands_the_first_and_the_last_are_kept() -> None:
    rows = [line(text) for n in range(3000) for text in (BEGIN, OUTER, f"KeyError: {n}", "INFO: on")]
    traces = read_traces(rows)
    assert (texts(traces[0]), texts(traces[-1])) == (["KeyError: 0"], ["KeyError: 2999"])


def test_frames_are_looked_through() -> None:
    raised = one(BEGIN, OUTER, INNER, CODE, "KeyError: 7").raised
    assert frames_in(raised, "nowhere", "model.py")
    assert not frames_in(raised, "load_weights")


PIECES = [
    BEGIN,
    "Worker: " + BEGIN,
    OUTER,
    INNER,
    CODE,
    "KeyError: 7",
    "AssertionError",
    DURING,
    DIRECT,
    "",
    "  ",
    "x",
]
spoken = st.builds(
    line, st.sampled_from(PIECES) | st.text(max_size=30), actor=st.sampled_from(["", "TP0", "TP1"]),
    ident=st.sampled_from(["", "a"]),
)  # fmt: skip


@given(st.lists(spoken, max_size=60))
def test_no_order_of_lines_breaks_it(rows: list[Line]) -> None:
    for trace in read_traces(rows):
        assert rows[trace.order] is trace.begin
        assert trace.order <= trace.end < len(rows)
        assert trace.raised
        assert all(trace.order <= place <= trace.end for place in trace.inner)
