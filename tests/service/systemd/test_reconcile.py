"""What a trial's drop-in says about stopping: never less time than there was, never a SIGKILL by surprise."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.service.systemd.hazards import DrainFacts
from draftmark.service.systemd.reconcile import LONGEST_S, MARGIN_S, reconcile
from draftmark.service.systemd.timespan import seconds, span
from draftmark.service.systemd.unitfile import UnitFile

PROPERTIES = {"TimeoutStopUSec": "1min 30s", "KillMode": "control-group", "KillSignal": "15", "SendSIGKILL": "yes"}
FILE = "/etc/systemd/system/llm.service"


def drain(worst_s: float | None, *, children: bool = False) -> DrainFacts:
    return DrainFacts(drains=True, worst_s=worst_s, children_need_main_only=children, source="the engine's notes")


def test_enough_time_needs_nothing() -> None:
    found = reconcile(PROPERTIES, drain(25))
    assert (found.settings, found.refusal, found.stop_timeout_s) == ({}, None, 90)


def test_too_little_time_is_made_longer_and_shown() -> None:
    files = [UnitFile(FILE, "[Service]\nTimeoutStopSec=90\n")]
    found = reconcile(PROPERTIES, drain(200), files)
    assert found.settings == {"TimeoutStopSec": "215s"}
    assert found.stop_timeout_s == 215
    assert found.because[0].line == f"{FILE}:2: TimeoutStopSec=90 (TimeoutStopUSec=1min 30s)"


def test_infinity_stays() -> None:
    found = reconcile(PROPERTIES | {"TimeoutStopUSec": "infinity"}, drain(200))
    assert (found.settings, found.stop_timeout_s) == ({}, math.inf)


@given(st.floats(0, 2000), st.floats(0, LONGEST_S - MARGIN_S))
def test_no_time_is_ever_shortened(given_s: float, worst_s: float) -> None:
    found = reconcile(PROPERTIES | {"TimeoutStopUSec": span(given_s)}, drain(worst_s))
    assert found.refusal is None
    assert found.stop_timeout_s >= max(given_s, worst_s)
    if "TimeoutStopSec" in found.settings:
        assert seconds(found.settings["TimeoutStopSec"]) == found.stop_timeout_s


@pytest.mark.parametrize(
    ("mode", "children", "expected"),
    [
        ("control-group", True, "mixed"),
        ("control-group", False, None),
        ("process", False, "mixed"),
        ("none", False, "mixed"),
        ("mixed", True, None),
    ],
)
def test_who_gets_the_signal(mode: str, children: bool, expected: str | None) -> None:
    found = reconcile(PROPERTIES | {"KillMode": mode}, drain(25, children=children))
    assert found.settings.get("KillMode") == expected


def test_what_else_would_spoil_a_trial() -> None:
    more = {
        "KillSignal": "9",
        "Restart": "always",
        "RuntimeMaxUSec": "1h",
        "StartLimitIntervalUSec": "1h",
        "StartLimitBurst": "3",
    }
    found = reconcile(PROPERTIES | more, drain(25))
    assert found.settings == {"KillSignal": "SIGTERM", "Restart": "no", "RuntimeMaxSec": "infinity"}
    assert found.unit_settings == {"StartLimitIntervalSec": "0"}
    assert len(found.because) == 4


@pytest.mark.parametrize(
    ("properties", "worst_s", "said"),
    [
        ({"SendSIGKILL": "no"}, 25.0, "SendSIGKILL=no"),
        ({}, None, "TimeoutStopUSec=1min 30s"),
        ({}, LONGEST_S, "the engine's notes"),
        ({"TimeoutStopUSec": ""}, 25.0, "TimeoutStopUSec="),
        ({"ExecStop": "{ path=/bin/kill ; argv[]=/bin/kill -9 $MAINPID ; }"}, 25.0, "kill -9"),
    ],
)
def test_what_cannot_be_made_safe_is_refused(properties: dict[str, str], worst_s: float | None, said: str) -> None:
    found = reconcile(PROPERTIES | properties, drain(worst_s))
    assert found.settings == {}
    assert found.refusal is not None
    assert found.refusal.exit_status == 30
    assert any(said in line for line in found.refusal.evidence)
    assert found.refusal.next_step


def test_a_line_that_kills_is_shown() -> None:
    files = [UnitFile(FILE, "[Service]\nExecStop=/bin/kill -KILL $MAINPID\n")]
    found = reconcile(PROPERTIES, drain(25), files)
    assert found.refusal is not None
    assert found.refusal.evidence == (f"{FILE}:2: ExecStop=/bin/kill -KILL $MAINPID",)


def test_a_longer_stop_may_be_allowed() -> None:
    assert reconcile(PROPERTIES, drain(2000), longest_s=3000).settings == {"TimeoutStopSec": "2015s"}
