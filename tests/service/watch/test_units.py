"""The unit files of a watch: what they hold, and that systemd reads it as it was meant (see test_live.py)."""

from __future__ import annotations

import shlex

import pytest

from draftmark.service.systemd.unitfile import Unit, UnitFile
from draftmark.service.watch.units import Programs, drop_in, fits, instance, is_ours, slices, started, template

PROGRAMS = Programs(python="/opt/draft mark/bin/python", systemctl="/usr/bin/systemctl")


def parsed(text: str) -> Unit:
    return Unit.parse([UnitFile("x", text)])


@pytest.mark.parametrize("user", [False, True])
def test_the_drop_in_only_adds(user: bool) -> None:
    text = drop_in("llm.service", PROGRAMS, user=user)
    assert is_ours(text)
    assert "draftmark watch remove unit:llm.service" in text
    found = {(each.section, each.key): each.value for each in parsed(text).assignments}
    assert set(found) == {("Unit", "OnFailure"), ("Unit", "Wants"), ("Service", "ExecStopPost")}
    assert all(found.values()), "an empty assignment would take the unit's own away"
    assert found["Unit", "OnFailure"] == "draftmark-watch@%n.service"
    assert found["Service", "ExecStopPost"].startswith("-+/bin/sh -c '")


def test_the_watcher_watches_nobody_and_quotes_its_interpreter() -> None:
    unit = parsed(template(PROGRAMS, user=False))
    start = unit.exec_start().value
    assert shlex.split(start) == [PROGRAMS.python, "-P", "-m", "draftmark", "watch", "run", "%i"]
    assert not unit.all("OnFailure", "Unit")
    assert unit.all("CollectMode", "Unit")


def test_a_percent_or_dollar_in_a_path_is_no_specifier() -> None:
    start = parsed(template(Programs("/opt/50%/$x/python", "/bin/systemctl"), user=False)).exec_start().value
    assert "/opt/50%%/$$x/python" in start


def test_a_users_manager_is_spoken_to() -> None:
    assert "watch run --user %i" in template(PROGRAMS, user=True)
    for text in (drop_in("x.service", PROGRAMS, user=True), started(PROGRAMS, user=True)):
        assert '"$$3" --user ' in text
    assert "--user" not in drop_in("x.service", PROGRAMS, user=False) + template(PROGRAMS, user=False)


def test_names() -> None:
    assert instance("llm@0.service") == "draftmark-watch@llm@0.service.service"
    assert fits("a" * 200 + ".service")
    assert not fits("a" * 240 + ".service")
    assert not is_ours("[Unit]\n# Draftmark: ")


def test_slices_are_named_as_systemd_names_them() -> None:
    assert slices(user=False) == (
        r"system-draftmark\x2dwatch.slice",
        r"system-draftmark\x2dwatch\x2dstarted.slice",
    )
    assert slices(user=True) == (r"app-draftmark\x2dwatch.slice", r"app-draftmark\x2dwatch\x2dstarted.slice")
