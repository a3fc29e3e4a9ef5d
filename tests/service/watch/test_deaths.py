"""Deaths that wait for their report."""

from __future__ import annotations

import json
import os
from pathlib import Path

from draftmark.service.watch.deaths import Death, Seen, handed_over, journalled, settle, spooled
from draftmark.service.watch.places import SYSTEM
from draftmark.testing.hosts import ScriptedHost

FIRST, SECOND = "a" * 32, "b" * 32


def test_what_the_hook_wrote_is_taken_in_order(tmp_path: Path) -> None:
    (tmp_path / SECOND).write_text("timeout killed KILL\n")
    (tmp_path / FIRST).write_text("exit-code exited 1\n")
    os.utime(tmp_path / FIRST, (1, 1))
    (tmp_path / "stray").write_bytes(b"\xff")
    (tmp_path / ("c" * 32)).mkdir()
    assert spooled(tmp_path) == [
        Death(FIRST, "exit-code", "exited", "1"),
        Death(SECOND, "timeout", "killed", "KILL"),
        Death("c" * 32),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["c" * 32]
    assert spooled(tmp_path / "none") == []


def test_systemd_hands_over_a_failure_and_no_success() -> None:
    environ = {
        "MONITOR_SERVICE_RESULT": "signal",
        "MONITOR_INVOCATION_ID": FIRST,
        "MONITOR_EXIT_CODE": "killed",
        "MONITOR_EXIT_STATUS": "KILL",
    }
    assert handed_over(environ) == Death(FIRST, "signal", "killed", "KILL")
    assert handed_over(environ | {"MONITOR_SERVICE_RESULT": "success"}) is None
    assert handed_over(environ | {"MONITOR_INVOCATION_ID": "../../etc/passwd"}) is None
    assert handed_over({}) is None


def test_the_journal_knows_the_last_failure() -> None:
    entry = json.dumps({"INVOCATION_ID": FIRST, "UNIT_RESULT": "resources"})
    host = ScriptedHost({"^journalctl .*--since=@5.000000 MESSAGE_ID=d9b3.* UNIT=llm.service": entry + "\n"})
    assert journalled(host, SYSTEM, "llm.service", 5.0) == Death(FIRST, "resources")
    for said in ("", "null\n", "{}\n", "no json\n", '{"INVOCATION_ID": 5}\n'):
        assert journalled(ScriptedHost({"^journalctl": said}), SYSTEM, "llm.service", 5.0) is None
    assert journalled(ScriptedHost({}), SYSTEM, "llm.service", 5.0) is None


def test_what_was_dealt_with_is_remembered(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    assert Death(FIRST) not in seen
    seen.add([Death(FIRST), Death("")])
    assert Death(FIRST) in Seen(tmp_path)
    assert Death("") not in seen
    seen.add([Death(f"{number:032x}") for number in range(300)])
    assert Death(FIRST) not in seen
    assert Death(f"{299:032x}") in seen
    assert [path.name for path in tmp_path.iterdir()] == ["seen"]
    full = Seen(tmp_path / "none")
    full.add([Death(FIRST)])
    assert Death(FIRST) in full, "or it would be reported for ever"


def waited(*answers: str) -> int:
    class Talking(ScriptedHost):
        said = iter(answers)

        def _answer(self, argv):  # type: ignore[no-untyped-def]
            self._answers = {"show": next(self.said, answers[-1])}
            return super()._answer(argv)

    now = [0.0]
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += seconds

    host = Talking({})
    settle(host, SYSTEM, "llm.service", Death(FIRST), monotonic=lambda: now[0], sleep=sleep)
    assert host.asked[-1] == ("journalctl", "--sync")
    return len(sleeps)


def test_systemds_last_word_is_waited_for() -> None:
    ending, over = (
        f"ActiveState=deactivating\nInvocationID={FIRST}\n",
        f"ActiveState=failed\nInvocationID={FIRST}\n",
    )
    assert waited(over) == 0
    assert waited(ending, ending, over) == 2
    assert waited(f"ActiveState=deactivating\nInvocationID={SECOND}\n") == 0, "it runs again"
    assert 10 < waited(ending) < 60, "not for ever"
