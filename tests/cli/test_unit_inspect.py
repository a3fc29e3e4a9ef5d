"""What inspect says of a unit that a Draftmark is at work on."""

from __future__ import annotations

import json

import pytest

from draftmark.cli.unit_inspect import _at_work, _words
from draftmark.model import Activity
from draftmark.ports import Completed
from draftmark.service.systemd.hold import Hold, hold_of
from draftmark.service.systemd.holder import Holder, holder_line
from draftmark.testing.hosts import ScriptedHost

UNIT = "llm.service"
STATE = f"/run/draftmark/{UNIT}"
TRIAL = f"/run/systemd/system/{UNIT}.d/zz-draftmark.trial.conf"
LINE = json.dumps({"who": "root@lab", "pid": 230, "since": "2026-11-29T17:50:27Z", "what": "draftmark tune"})
HELD = f"active=active\nstate={STATE}\nholder={LINE}\nlast_sign_s=1\nlease_s=60\n"
MEASURING = {f"{STATE}/measuring": b"2026-11-29T17:51:02Z\n"}


def look(*hosts: ScriptedHost) -> Hold | None:
    return hold_of(UNIT, user_scope=False, hosts=hosts)


def test_nothing_of_a_tuning() -> None:
    assert look(ScriptedHost({"status": "active=active\nkept=/etc/x\n"})) is None
    assert look(ScriptedHost({})) is None


def test_who_holds_it_since_when_and_that_it_measures() -> None:
    hold = look(ScriptedHost({"status": f"{HELD}dropin={TRIAL}\n"}, MEASURING))
    assert hold is not None
    assert str(hold.holder) == "root@lab, pid 230, since 2026-11-29T17:50:27Z (draftmark tune)"
    assert (hold.measuring, hold.last_sign_s, hold.lease_s) == ("2026-11-29T17:51:02Z", 1, 60)
    assert (hold.trial, hold.gone) == (TRIAL, False)


def test_without_rights_it_is_seen_that_somebody_does() -> None:
    refused = ScriptedHost({"sudo|status": Completed(1, stderr="sudo: a password is required")})
    plain = ScriptedHost({"status": f"active=active\nstate={STATE}\nholder=\nlast_sign_s=999999\nlease_s=0\n"})
    hold = look(refused, plain)
    assert hold is not None
    assert hold.held
    assert (str(hold.holder), hold.last_sign_s, hold.lease_s) == ("somebody who has not said who", None, None)


def test_a_dead_holder_is_known_on_its_own_computer() -> None:
    dead = {**json.loads(holder_line("draftmark tune")), "started_ticks": 1}
    hold = look(ScriptedHost({"status": HELD.replace(LINE, json.dumps(dead))}))
    assert hold is not None
    assert hold.gone
    [hazard] = _at_work(f"unit:{UNIT}", hold, None)
    assert hazard["next_step"].startswith(f"its process is dead: draftmark restore unit:{UNIT}")


HOLDER = Holder.of(LINE)


@pytest.mark.parametrize(
    ("hold", "running", "said"),
    [
        (
            Hold(held=True, holder=HOLDER, measuring="T", trial=TRIAL),
            4,
            "measuring since T: 4 requests in flight",
        ),
        (Hold(held=True, holder=HOLDER, measuring="T"), 0, "measuring since T"),
        (Hold(held=True, holder=HOLDER), 2, "2 requests in flight: its own, or others'"),
    ],
)
def test_its_requests_are_not_blamed_on_others(hold: Hold, running: int, said: str) -> None:
    [hazard] = _at_work(f"unit:{UNIT}", hold, Activity(running=running, queued=0))
    assert (hazard["code"], hazard["severity"]) == ("held", "stops-tuning")
    assert hazard["evidence"][0] == f"held by {HOLDER}"
    assert any("a trial's" in line for line in hazard["evidence"]) == bool(hold.trial)
    assert hazard["evidence"][-1] == said
    assert "others use" not in hazard["what"]
    assert "`kill 230` on lab" in hazard["next_step"]


def test_a_trial_that_was_left_behind() -> None:
    hold = look(ScriptedHost({"status": f"active=active\ndropin={TRIAL}\n"}))
    assert hold is not None
    [hazard] = _at_work(f"unit:{UNIT} --host gpu1", hold, None)
    assert (hazard["code"], hazard["next_step"]) == ("left-over", f"draftmark restore unit:{UNIT} --host gpu1")


@pytest.mark.parametrize(("line", "words"), [("a 'b c'", ("a", "b c")), ("a 'b", ())])
def test_the_words_of_a_line(line: str, words: tuple[str, ...]) -> None:
    assert _words(line) == words
