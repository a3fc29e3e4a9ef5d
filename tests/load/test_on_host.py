"""The load generator on the service's own host, here played by this computer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark import __version__
from draftmark.errors import BadInputError, FailedError, Interrupted, UsageError
from draftmark.load.client import LoadPlan, LoadRun
from draftmark.load.on_host import OnHostLoad, Spec, find_program, serve
from draftmark.model import Message, Prompt, Workload
from draftmark.ports import Completed
from draftmark.service.local import LocalHost
from draftmark.testing.hosts import ScriptedHost

from .scripted import Request, Wire, answer, serving

PROGRAM = (sys.executable, "-m", "draftmark")
WORKLOAD = Workload("w", tuple(Prompt(f"p{i}", (Message("user", f"say {i}"),), 8) for i in range(2)))


def load(url: str, program: tuple[str, ...] = PROGRAM, **callbacks: Any) -> LoadRun:
    on_host = OnHostLoad(host=LocalHost(), program=program, there=lambda _url: url)
    return on_host(
        "http://127.0.0.1:1",
        WORKLOAD,
        concurrency=2,
        repeat=2,
        warmup=1,
        extra={"cache_prompt": False},
        request_timeout_s=20.0,
        headers={"Authorization": "Bearer s3cret"},
        first_tag=7,
        on_record=callbacks.get("on_record", lambda _record: None),
        on_progress=callbacks.get("on_progress", lambda *_now: None),
    )


def test_the_records_are_those_of_a_load_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    asked: list[Request] = []

    async def script(wire: Wire, request: Request) -> None:
        asked.append(request)
        await answer()(wire, request)

    seen: list[Any] = []
    progress: list[Any] = []
    with serving(script) as server:
        run = load(server.url, on_record=seen.append, on_progress=lambda *now: progress.append(now))
    assert [record.warmup for record in run.records].count(True) == 1
    assert len(run.records) == 5
    assert all(record.error is None and record.output_tokens for record in run.records)
    assert tuple(seen) == run.records
    assert progress[-1][:2] == (4, 4)
    assert {request.headers["authorization"] for request in asked} == {"Bearer s3cret"}
    assert {request.body["cache_prompt"] for request in asked} == {False}
    assert {record.tag for record in run.records} == {f"bench-{n}" for n in range(7, 12)}
    assert run.client.cpu_s is not None
    assert list(tmp_path.iterdir()) == []  # the spec, with its key, is gone


def test_what_breaks_off_there_is_an_error_here() -> None:
    with pytest.raises(FailedError, match="broke off") as caught:
        load("http://127.0.0.1:1", program=("sh", "-c", "echo noise; echo boom >&2; exit 3"))
    assert caught.value.evidence == ("boom",)
    assert "--load-from here" in caught.value.next_step


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\x00", msgspec.json.encode({"base_url": 3})])
def test_what_is_no_load_is_refused(tmp_path: Path, data: bytes) -> None:
    spec = tmp_path / "spec"
    spec.write_bytes(data)
    with pytest.raises(BadInputError, match="is no load"):
        serve(spec, lambda _line: None)


def test_only_the_same_version_is_used() -> None:
    same = ScriptedHost({r"^draftmark --version": f"draftmark {__version__}\n"})
    assert find_program(same, __version__) == ("draftmark",)
    module = ScriptedHost({r"^draftmark": Completed(None, missing=True), r"^python3": f"draftmark {__version__}\n"})
    assert find_program(module, __version__) == ("python3", "-m", "draftmark")
    older = ScriptedHost({r"--version": "draftmark 0.0.1\n"})
    assert find_program(older, __version__) is None
    assert find_program(ScriptedHost({}), __version__) is None


def test_a_spec_survives_its_way() -> None:
    plan = LoadPlan(
        workload=WORKLOAD,
        concurrency=0,
        api="openai",
        extra={"a": [1, None, "ü"]},
        send_at_s=(0.0, 0.25),
        think_s=(1.5,),
        stream=False,
        max_seconds=9.0,
    )
    spec = Spec(base_url="http://h:1", plan=plan, headers={"A": "b"}, connect_timeout_s=2.5, workers=2)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=Spec) == spec


def test_an_open_loop_with_conversations_is_carried_out_there_as_here() -> None:
    talk = Workload("talk", (Prompt("p", (Message("user", "one"),), 8, follow_ups=("two",)),))
    plan = LoadPlan(workload=talk, concurrency=0, send_at_s=(0.0, 0.05, 0.1), model="m")
    with serving(answer()) as server:
        run = OnHostLoad(host=LocalHost(), program=PROGRAM, there=lambda _url: server.url).run_load("", plan)
    assert sorted(r.tag for r in run.records) == [f"bench-{n}{t}" for n in (1, 2, 3) for t in ("", ".1")]
    assert sorted(r.intended_at_s or 0.0 for r in run.records if r.turn == 0) == pytest.approx([0.0, 0.05, 0.1])
    assert run.client.send_late_ms_max is not None
    assert (run.unsent, run.disturbed, run.stopped_because) == ({}, (), None)


def test_what_was_not_sent_there_is_told_here() -> None:
    at = (0.0, 0.01, 90.0)
    plan = LoadPlan(workload=WORKLOAD, concurrency=0, send_at_s=at, max_seconds=0.5, model="m")
    with serving(answer()) as server:
        run = OnHostLoad(host=LocalHost(), program=PROGRAM, there=lambda _url: server.url).run_load("", plan)
    assert [r.error for r in run.records] == [None, None]
    assert run.unsent == {"the limit of 0.5 s was reached": 1}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(15)], ids=["keyboard", "own"])
def test_an_interruption_hands_over_what_had_come(error: BaseException) -> None:
    def on_record(_record: object) -> None:
        raise error

    kept: list[LoadRun] = []
    plan = LoadPlan(workload=WORKLOAD, concurrency=1, repeat=3, warmup=0, model="m")
    with serving(answer()) as server, pytest.raises(type(error)):
        OnHostLoad(host=LocalHost(), program=PROGRAM, there=lambda _url: server.url).run_load(
            "", plan, on_record=on_record, on_interrupted=kept.append
        )
    (run,) = kept
    assert len(run.records) == 1
    assert sum(run.unsent.values()) == 5
    assert run.stopped_because is not None


def test_a_plan_that_cannot_be_carried_out_is_refused_there(tmp_path: Path) -> None:
    spec = Spec(
        base_url="http://h:1",
        plan=LoadPlan(workload=WORKLOAD, concurrency=1),
        headers={},
        connect_timeout_s=1.0,
        workers=1,
    )
    told = msgspec.to_builtins(spec)
    told["plan"]["api"] = "gopher"
    file = tmp_path / "spec"
    file.write_bytes(msgspec.json.encode(told))
    with pytest.raises(UsageError, match="unknown API"):
        serve(file, lambda _line: None)
