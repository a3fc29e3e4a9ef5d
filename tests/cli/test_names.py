"""Every verb that takes a service takes a name of draftmark.toml, or the path of that file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftmark.cli import hosts, restore, unit_target, watch, why
from draftmark.cli.main import main
from draftmark.cli.services import Member
from draftmark.cli.why_members import Examined, examine_members, first_to_fail
from draftmark.errors import DraftmarkError, HostError, RefusedError, UnrestoredError
from draftmark.postmortem.model import Confidence, Verdict
from draftmark.service.systemd.restore import RestoreReport
from draftmark.service.watch.install import Status
from draftmark.service.watch.places import SYSTEM, Watched
from draftmark.testing import verdicts
from draftmark.testing.hosts import ScriptedHost

FILE = """\
[services.qwen]
unit = "sglang-qwen.service"
host = "gpu1"

[services.big]
members = [{ unit = "big-0.service", host = "gpu1" }, { unit = "big-1.service", host = "gpu2" }]
"""
QWEN = (Member("sglang-qwen.service", "gpu1"),)
BIG = (Member("big-0.service", "gpu1"), Member("big-1.service", "gpu2"))
VERBS = [("inspect",), ("bench",), ("plan",), ("restore",), ("watch", "status"), ("watch", "install"), ("why",)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "draftmark.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hosts, "host_at", lambda name: ScriptedHost({}, name=name or "here"))
    return tmp_path


@pytest.fixture
def reached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Member]:
    """The units that a verb has come to, and no further."""
    seen: list[Member] = []

    def stop(*members: Member) -> None:
        seen.extend(members)
        raise RefusedError("far enough")

    monkeypatch.setattr(unit_target, "unit_target", lambda _args, members, *_: stop(*members))
    monkeypatch.setattr(restore, "_restored", lambda member, **_: stop(member))
    monkeypatch.setattr(watch, "_status", lambda member, _: stop(member))
    monkeypatch.setattr(watch, "_install", lambda member, _: stop(member))

    def examine(question: Any, *, host: Any, **_: Any) -> None:
        stop(Member(question.service.name, host.name))

    monkeypatch.setattr(why, "_examine", examine)
    return seen


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_name_stands_for_its_units(reached: list[Member], verb: tuple[str, ...]) -> None:
    assert main([*verb, "qwen"]) == 30
    assert tuple(reached) == QWEN
    reached.clear()
    assert main([*verb, "big"]) == 30
    assert tuple(reached) == BIG


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_file_with_one_service_stands_for_it(reached: list[Member], verb: tuple[str, ...], folder: Path) -> None:
    (folder / "there").mkdir()
    (folder / "there/draftmark.toml").write_text(FILE.partition("\n\n")[0])
    assert main([*verb, "there/draftmark.toml"]) == 30
    assert tuple(reached) == QWEN


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_an_unknown_word_is_answered_with_the_names(
    reached: list[Member], verb: tuple[str, ...], capsys: Any, folder: Path
) -> None:
    assert main([*verb, "qwn"]) == 2
    said = capsys.readouterr().err
    assert 'no service "qwn" in draftmark.toml' in said
    assert "it has: qwen, big" in said
    assert "did you mean qwen?" in said
    assert main([*verb, "draftmark.toml"]) == 2
    assert "draftmark.toml has several services" in capsys.readouterr().err
    (folder / "draftmark.toml").unlink()
    assert main([*verb, "qwen"]) == 2
    assert "stands in draftmark.toml, which is not here" in capsys.readouterr().err
    assert not reached


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_host_of_its_own_is_refused(reached: list[Member], verb: tuple[str, ...], capsys: Any) -> None:
    assert main([*verb, "qwen", "--host", "gpu9"]) == 2
    assert "on which host" in capsys.readouterr().err
    assert not reached


def report(**changed: Any) -> RestoreReport:
    plain = RestoreReport(
        nothing=False, removed=("/x",), undone_keep=False, put_back=(), left=False, restarted=True, changed=(),
        added=(), missing=(), saved=(), same_command=True, active="active", invocation="a",
    )  # fmt: skip
    return replace(plain, **changed)


@pytest.fixture
def restoring(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes `restore` say this of each host, or raise it; which hosts were asked."""

    def become(**answers: RestoreReport | DraftmarkError) -> list[str]:
        asked: list[str] = []

        def answer(host: Any, unit: str, **_: Any) -> RestoreReport:
            asked.append(f"{unit} on {host.name}")
            found = answers[host.name]
            if isinstance(found, DraftmarkError):
                raise found
            return found

        monkeypatch.setattr(restore, "_manager", lambda _host, name: SimpleNamespace(unit=name, user=False))
        monkeypatch.setattr(restore, "restore", answer)
        return asked

    return become


def test_members_are_put_back_in_rank_order(restoring: Callable[..., list[str]], capsys: Any) -> None:
    asked = restoring(gpu1=report(), gpu2=report(nothing=True))
    assert main(["restore", "big"]) == 0
    assert asked == ["big-0.service on gpu1", "big-1.service on gpu2"]
    out = capsys.readouterr().out
    assert "big-0.service on gpu1 is as it was" in out
    assert "big-1.service on gpu2: nothing of draftmark's is there" in out
    assert main(["restore", "big", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["service"]) == ("draftmark.restore/1", "big")
    assert [each["host"] for each in document["members"]] == ["gpu1", "gpu2"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"undone_keep": True}, "its own configuration, as it is now, is in force again"),
        ({"undone_keep": True, "put_back": ("/etc/x",)}, "the choice before it is in force again"),
        ({"changed": ("/etc/x",)}, "is as it was, but for what somebody else did to it"),
    ],
)
def test_what_is_said_of_a_unit_that_has_changed_meanwhile_is_true(
    restoring: Callable[..., list[str]], capsys: Any, found: dict[str, Any], said: str
) -> None:
    restoring(gpu1=report(**found), gpu2=report())
    assert main(["restore", "big"]) == 0
    assert said in capsys.readouterr().out.partition("big-1")[0]


def test_one_that_fails_keeps_no_other_from_being_put_back(
    restoring: Callable[..., list[str]], capsys: Any
) -> None:
    asked = restoring(gpu1=UnrestoredError("it did not stay up"), gpu2=report())
    assert main(["restore", "big"]) == 51
    assert len(asked) == 2
    told = capsys.readouterr()
    assert "big-1.service on gpu2 is as it was" in told.out
    assert "unit:big-0.service --host gpu1: it did not stay up" in told.err
    assert "unit:big-1.service --host gpu2: done" in told.err


def test_the_worst_is_what_it_ends_with(restoring: Callable[..., list[str]], capsys: Any) -> None:
    restoring(gpu1=RefusedError("it measures"), gpu2=UnrestoredError("it did not stay up"))
    assert main(["restore", "big"]) == 51
    said = capsys.readouterr().err
    assert "unit:big-1.service --host gpu2: it did not stay up" in said
    assert "unit:big-0.service --host gpu1: it measures" in said


def test_each_member_is_watched(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    found = {"big-0.service": True, "big-1.service": False}
    monkeypatch.setattr(
        watch,
        "status",
        lambda _host, name: Status(Watched(name, SYSTEM, {}), found[name], None, found[name]),
    )
    assert main(["watch", "status", "big"]) == 0
    out = capsys.readouterr().out
    assert "big-0.service is watched" in out
    assert "next: draftmark watch install unit:big-1.service --host gpu2" in out
    assert main(["watch", "status", "big", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(each["unit"], each["installed"]) for each in document["members"]] == list(found.items())


PEER = replace(verdicts.stop_timeout(), cause="peer-rank-died", root_elsewhere="rank 1")
OOM = replace(verdicts.stop_timeout(), cause="cgroup-oom")
WELL = replace(verdicts.stop_timeout(), cause="healthy-running", died=False)
KILLED = replace(verdicts.unsettled(), died=True)
QUIET = replace(verdicts.unsettled(), died=None)


@pytest.mark.parametrize(
    ("rows", "rank"),
    [
        ((PEER, OOM), 1),
        ((OOM, PEER), 0),
        ((PEER, KILLED), 1),
        ((QUIET, PEER), 1),
        ((WELL, QUIET), 1),
        ((WELL, WELL), 0),
        ((None, WELL), 1),
    ],
)
def test_the_member_that_failed_by_itself_is_shown(rows: tuple[Verdict | None, ...], rank: int) -> None:
    found = [Examined(i, BIG[i], verdict) for i, verdict in enumerate(rows)]
    assert first_to_fail(found).rank == rank


def test_why_says_which_member(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    rows = {"gpu1": PEER, "gpu2": replace(OOM, service="big-1.service")}
    monkeypatch.setattr(why, "_examine", lambda _question, *, host, **_: rows[host.name])
    assert main(["why", "big"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("cgroup-oom")
    assert "big-1.service on gpu2" in out
    assert "rank 0  unit:big-0.service --host gpu1  peer-rank-died, certain" in out
    assert "rank 1  unit:big-1.service --host gpu2  cgroup-oom, certain  (this one)" in out
    assert main(["why", "big", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["service"] == "big-1.service"
    assert [(each["cause"], each["shown"]) for each in document["members"]] == [
        ("peer-rank-died", False),
        ("cgroup-oom", True),
    ]
    assert main(["why", "big", "--markdown"]) == 0
    assert "- rank 0" in capsys.readouterr().out
    assert main(["why", "big", "--service", "x"]) == 2


def test_a_member_that_cannot_be_read_hides_no_other() -> None:
    def examine(member: Member) -> Verdict:
        if member.host == "gpu1":
            raise HostError("gpu1 cannot be reached")
        return replace(WELL, confidence=Confidence.LIKELY)

    found = examine_members(BIG, examine)
    shown = first_to_fail(found)
    assert [each.line(shown) for each in found] == [
        "rank 0  unit:big-0.service --host gpu1  not read: gpu1 cannot be reached",
        "rank 1  unit:big-1.service --host gpu2  healthy-running, likely  (this one)",
    ]
    with pytest.raises(HostError):
        examine_members(BIG[:1], examine)
