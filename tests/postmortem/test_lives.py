"""Which of a server's lives in one log is explained: the last that ended, or the first of a burst of restarts."""

from __future__ import annotations

from draftmark.cli.compose_why import tables
from draftmark.postmortem.events import read_events
from draftmark.postmortem.lives import Life, last_ended, split_lives

from .small import DECODE, KILLED, SGLANG_START, SGLANG_UP, STARTED, crash, journal, line, lines, log, verdict

TEARDOWN = "kill_process_tree called: parent_pid=9, include_parent=True, pid=9"


def lives(*texts: str) -> list[Life]:
    rows = lines(*texts)
    return split_lives(read_events(rows, tables()), len(rows))


def spans(found: list[Life]) -> list[tuple[int, int]]:
    return [(life.begin, life.end) for life in found]


def test_one_life() -> None:
    found = lives(*SGLANG_UP, DECODE)
    assert spans(found) == [(0, 7)]
    assert (found[0].alive, found[0].failed) == (True, False)


def test_no_line_is_one_empty_life() -> None:
    assert spans(lives()) == [(0, 0)]
    assert spans(lives("nothing", "at all")) == [(0, 2)]


def test_a_start_after_an_end_is_a_new_life() -> None:
    found = lives(*SGLANG_UP, TEARDOWN, *SGLANG_START)
    assert spans(found) == [(0, 7), (7, 11)]
    assert [life.failed for life in found] == [True, False]
    assert [life.alive for life in found] == [True, False]


def test_a_start_after_service_is_a_new_life_even_without_an_end() -> None:
    """A SIGKILL leaves no line."""
    assert spans(lives(*SGLANG_UP, DECODE, *SGLANG_START)) == [(0, 7), (7, 11)]


def test_a_second_start_line_of_the_same_start_is_none() -> None:
    """Every rank prints its arguments."""
    assert len(lives(SGLANG_START[0], SGLANG_START[0], *SGLANG_START[1:])) == 1


def test_systemd_starting_is_no_new_life_before_the_end() -> None:
    rows = [line("Decode batch, #running-req: 1"), line("Started other.service - B.", ident="systemd")]
    assert len(split_lives(read_events(rows, tables()), 2)) == 1


def test_a_failed_start_is_a_life_of_its_own() -> None:
    failed = (*SGLANG_START[:2], *crash("KeyError: 'lm_head'"), TEARDOWN)
    found = lives(*failed, *failed, *SGLANG_UP)
    assert [life.failed for life in found] == [True, True, False]


def test_a_failed_request_is_no_failed_life() -> None:
    found = lives(*SGLANG_UP, "retract_decode: aborted last request a1 due to OOM", DECODE)
    assert [life.failed for life in found] == [False]


A, B, C, D = (
    Life(0, 5, failed=True, alive=True),
    Life(5, 9, failed=True, alive=False),
    Life(9, 12, failed=True, alive=False),
    Life(12, 15, failed=False, alive=True),
)


def test_the_last_that_ended_is_explained() -> None:
    assert last_ended([A, B], first_of_burst=False) == (B, False)


def test_of_a_burst_the_first_is_explained() -> None:
    assert last_ended([A, B, C], first_of_burst=True) == (A, False)


def test_a_burst_ends_where_a_life_was_well() -> None:
    well = Life(0, 5, failed=False, alive=True)
    assert last_ended([well, B, C], first_of_burst=True) == (B, False)


def test_a_later_life_that_is_up_is_told() -> None:
    assert last_ended([A, D], first_of_burst=False) == (A, True)


def test_without_a_failure_the_last_life_counts() -> None:
    assert last_ended([D], first_of_burst=False) == (D, False)


def test_the_cause_is_that_of_the_last_life() -> None:
    first = (
        *SGLANG_UP,
        DECODE,
        *crash("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        TEARDOWN,
    )
    second = (*SGLANG_UP, DECODE, *crash("IndexError: list index out of range"), TEARDOWN)
    answer = verdict(log(*first, *second))
    assert answer.cause == "python-exception-scheduler"
    assert all("out of memory" not in proof.text for proof in answer.evidence)


def test_after_a_start_limit_the_first_failure_is_the_cause() -> None:
    rows = [STARTED]
    for n in range(3):
        rows += [
            (10.0 * n, KILLED if not n else "llm.service: Main process exited, code=exited, status=1/FAILURE"),
            (10.0 * n + 1, "llm.service: Failed with result 'exit-code'."),
            (10.0 * n + 2, f"llm.service: Scheduled restart job, restart counter is at {n + 1}."),
            (10.0 * n + 3, "Started llm.service - LLM server."),
        ]
    rows += [(50.0, "llm.service: Start request repeated too quickly.")]
    answer = verdict(journal(*rows))
    assert "status=9/KILL" in " ".join(proof.text for proof in answer.evidence)
