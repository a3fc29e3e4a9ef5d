"""What became of a service after its end: systemd's record of a unit that is up again."""

from __future__ import annotations

import pytest

from draftmark.postmortem.model import Kind, Source, Verdict
from draftmark.report.why_words import state

from .small import DECODE, KILLED, QUIET, SGLANG_UP, STARTED, UNIT, journal, kernel, log, record, verdict

# `small.START`, the zero of the journal's clock, is 2026-03-02 10:00:00 UTC.
EARLIER, LATER = "Mon 2026-03-02 09:00:00 UTC", "Mon 2026-03-02 10:00:07 UTC"
STOPPED = (
    STARTED,
    (0.0, f"Stopping {UNIT} - LLM server..."),
    (2.0, f"{UNIT}: Deactivated successfully."),
    (2.0, f"Stopped {UNIT} - LLM server."),
)
DEAD = (STARTED, (5.0, KILLED), (5.0, f"{UNIT}: Failed with result 'signal'."))


def unit(active: str, entered: str, sub: str = "running") -> Source:
    rows = f"Id={UNIT}\nActiveState={active}\nSubState={sub}\nNRestarts=1\nActiveEnterTimestamp={entered}\n"
    return record(Kind.SYSTEMCTL_SHOW, rows, f"systemctl show {UNIT}")


def killed(*records: Source) -> Verdict:
    return verdict(log(*SGLANG_UP, DECODE), journal(*DEAD), kernel(QUIET), *records)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (unit("active", LATER), "died, and runs again since 2026-03-02 10:00:07 UTC"),
        (unit("active", "Mon 2026-03-02 11:00:07 CET"), "died, and runs again since 2026-03-02 11:00:07 CET"),
        (unit("active", ""), "died, and runs again"),
        (unit("activating", "", "auto-restart"), "died, and is being started again"),
        (unit("active", EARLIER), "the service is gone"),
        (unit("failed", EARLIER, "failed"), "the service is gone"),
    ],
)
def test_a_unit_that_systemd_has_restarted_is_not_gone(shown: Source, said: str) -> None:
    answer = killed(shown)
    assert answer.cause == "user-or-supervisor-sigkill"
    assert state(answer) == said


def test_without_a_record_nothing_is_known_of_afterwards() -> None:
    assert killed().afterwards is None


def test_a_unit_that_was_stopped_in_order_and_is_up_again_is_healthy() -> None:
    stopped = (log(*SGLANG_UP, DECODE), journal(*STOPPED))
    assert verdict(*stopped).cause == "healthy-exit"
    answer = verdict(*stopped, unit("active", LATER))
    assert (answer.cause, answer.died, answer.phase) == ("healthy-running", False, "serving")
    assert answer.summary.startswith("It runs since 2026-03-02 10:00:07 UTC. Of the run before that: it was asked")
    assert answer.evidence[0].text == "ActiveState=active"
    assert "Stopping" in answer.evidence[1].text
    assert state(answer) is None


@pytest.mark.parametrize("shown", [unit("inactive", EARLIER, "dead"), unit("active", EARLIER)])
def test_a_unit_that_is_down_or_a_record_of_before_is_a_healthy_exit(shown: Source) -> None:
    assert verdict(log(*SGLANG_UP, DECODE), journal(*STOPPED), shown).cause == "healthy-exit"
