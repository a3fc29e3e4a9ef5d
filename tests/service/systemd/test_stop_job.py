"""Whether a unit ended by a stop job: systemd's lines as systemd 252 wrote them."""

from __future__ import annotations

import json

import pytest

from draftmark.service.systemd.manager import Manager
from draftmark.service.systemd.stop_job import parse, stop_job
from draftmark.testing.hosts import ScriptedHost

STOPPING = {
    "MESSAGE_ID": "de5b426a63be47a7b6ac3eaac82e2f6f",
    "MESSAGE": "Stopping llm.service - An LLM...",
    "JOB_TYPE": "stop",
    "__REALTIME_TIMESTAMP": "1796026880616604",
}
STOPPED = {"MESSAGE_ID": "9d1aaa27d60140bd96365438aad20286", "MESSAGE": "Stopped llm.service - An LLM."}


def lines(*entries: dict[str, str]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


@pytest.mark.parametrize(("job", "restart"), [("stop", False), ("restart", True), ("try-restart", True)])
def test_the_end_says_whether_it_was_a_restart(job: str, restart: bool) -> None:
    """Of a restart too, the line of its beginning says `stop`."""
    found = parse(lines(STOPPING, {**STOPPED, "JOB_TYPE": job}))
    assert found is not None
    assert found.restart is restart
    assert found.line == "2026-11-30T08:21:20Z systemd: Stopping llm.service - An LLM..."


@pytest.mark.parametrize("output", [b"", b"not json\n[1]\n", lines(STOPPED), lines({"MESSAGE": "Stopping"})])
def test_what_died_has_no_such_line(output: bytes) -> None:
    assert parse(output) is None


def test_the_journal_is_asked_for_that_run_and_waited_for() -> None:
    host = ScriptedHost({"USER_INVOCATION_ID=aa": b"", " INVOCATION_ID=aa": lines(STOPPING)})
    slept: list[float] = []
    assert stop_job(host, Manager(host, "llm.service"), "aa", slept.append) is not None
    assert not slept
    assert stop_job(host, Manager(host, "llm.service", user=True), "aa", slept.append) is None
    assert len(slept) == 2
