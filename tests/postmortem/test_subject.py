"""Whose death it is: a host's journal holds many services, and most of what dies in it is none of ours."""

from __future__ import annotations

import pytest

from draftmark.cli.compose_why import tables
from draftmark.postmortem.events import standing_hints
from draftmark.postmortem.model import Kind, Line
from draftmark.postmortem.subject import Subject, find_subject

from .small import DECODE, KILLED, SGLANG_START, SGLANG_UP, journal, kernel, line, log, record, timed, verdict


def said(text: str, ident: str = "", unit: str = "") -> Line:
    return line(text, ident=ident, unit=unit)


def found(*rows: Line, unit: str = "", named: tuple[str, ...] = ()) -> Subject:
    return find_subject(rows, tables(), standing_hints(rows, tables()), unit=unit, named=named)


SERVER = [said(text, "python3") for text in (*SGLANG_UP, DECODE)]


def sd(text: str) -> Line:
    return said(text, "systemd")


# The unit.


def test_a_name_that_is_given_stands() -> None:
    assert found(sd("vllm.service: Failed with result 'signal'."), unit="box.service").unit == "box.service"


def test_by_its_name() -> None:
    subject = found(
        sd("Started reportd.service - Reports."),
        sd("reportd.service: Failed with result 'exit-code'."),
        sd("reportd.service: Scheduled restart job, restart counter is at 1."),
        sd("vllm-70b.service: Main process exited, code=killed, status=9/KILL"),
    )
    assert subject.unit == "vllm-70b.service"
    assert subject.others == {"reportd.service"}


def test_by_a_structured_field_on_the_servers_lines() -> None:
    rows = [said(text, "python3", unit="blue.service") for text in SGLANG_UP]
    other = [said("GET /", "nginx", unit="green.service") for _ in range(50)]
    assert found(*other, *rows, sd("green.service: Failed with result 'signal'.")).unit == "blue.service"


def test_by_when_it_was_started() -> None:
    noise = [said("x", "cron") for _ in range(60)]
    rows = [sd("Started blue.service - Blue."), *SERVER, *noise, sd("green.service: Failed with result 'signal'.")]
    assert found(sd("Started green.service - Green."), *noise, *rows).unit == "blue.service"


def test_by_when_it_ended() -> None:
    noise = [said("x", "cron") for _ in range(60)]
    rows = [sd("green.service: Main process exited, code=killed, status=9/KILL"), *noise, *SERVER]
    assert found(*rows, sd("blue.service: Main process exited, code=killed, status=9/KILL")).unit == "blue.service"


def test_by_its_processes() -> None:
    """A unit whose processes are no model server's is not tied to the server, close as its lines may be."""
    rows = [*SERVER, sd("green.service: Killing process 12 (reportd) with signal SIGKILL.")]
    assert found(*rows, sd("green.service: Main process exited, code=killed, status=9/KILL")).unit == ""


def test_a_neighbours_unit_is_not_taken_where_a_server_speaks() -> None:
    noise = [said("x", "cron") for _ in range(60)]
    subject = found(*SERVER, *noise, sd("green.service: Main process exited, code=killed, status=9/KILL"))
    assert subject.unit == ""
    assert subject.others == {"green.service"}


def test_the_only_service_of_a_bare_journal() -> None:
    assert found(sd("blue.service: Main process exited, code=killed, status=9/KILL")).unit == "blue.service"


def test_a_known_service_of_another_kind_is_never_preferred() -> None:
    rows = [sd("nginx.service: Failed with result 'exit-code'.") for _ in range(9)]
    assert found(*rows, sd("blue.service: Failed with result 'signal'.")).unit == "blue.service"


def test_nothing_is_nobody() -> None:
    subject = found()
    assert (subject.unit, subject.idents, subject.others) == ("", frozenset(), frozenset())


# The writers.


def test_the_writer_that_speaks_as_an_engine() -> None:
    assert found(*SERVER, said("ERROR: deadlock detected", "postgres"), said("x", "job")).idents == {"python3"}


def test_the_writer_with_a_likely_name() -> None:
    assert found(said("killed", "vllm-1"), said("x", "postgres-1"), said("x", "web-1")).idents == {"vllm-1"}


def test_writers_of_which_none_is_known_but_foreign() -> None:
    assert found(said("killed", "app-1"), said("x", "postgres-1"), said("x", "redis-1")).idents == {"app-1"}
    assert found(said("x", "postgres-1"), said("x", "redis-1")).idents == {"postgres-1", "redis-1"}


# What is ours.

OURS = Subject(
    unit="llm.service", others=frozenset(("reportd.service", "llm.slice", "user-1000.slice", "init.scope")),
    idents=frozenset(("python3",)), containers=frozenset(("8c1f0b7a88e24d53b9a1",)), pids={4471},
    comms={"pt_main_thread", "serve"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("row", "ours"),
    [
        (sd("llm.service: Failed with result 'timeout'."), True),
        (sd("reportd.service: Failed with result 'timeout'."), False),
        (sd("Stopping reportd.service - Reports..."), False),
        (sd("llm.slice: A process of this unit has been killed by the OOM killer."), True),
        (sd("user-1000.slice: Failed with result 'timeout'."), False),
        (said("Stopped.", "systemd", unit="user@1000.service"), True),
        (sd("Started LLM server."), True),
        (sd("Starting Daily apt activities..."), False),
        (sd("Shutting down."), True),
        (said("Out of memory: Killed process 1 (x)", "kernel"), True),
        (said("serving", "python3"), True),
        (said("deadlock", "postgres"), False),
        (said("serving", ""), True),
        (said("serving", "python3", unit="reportd.service"), False),
        (said("serving", "python3", unit="llm.service"), True),
        (said("postgres-1 exited with code 137"), False),
        (said("python3 exited with code 137"), True),
    ],
    ids=lambda value: value.text[:40] if isinstance(value, Line) else None,
)
def test_which_lines_are_ours(row: Line, ours: bool) -> None:
    assert OURS.owns(row) is ours


@pytest.mark.parametrize(
    ("victim", "ours"),
    [
        ({"cgroup": "/system.slice/llm.service"}, True),
        ({"cgroup": "/outer/7/system.slice/llm.service/worker"}, True),
        ({"cgroup": "/system.slice/reportd.service"}, False),
        ({"cgroup": "/system.slice/docker-8c1f0b7a88e24d53b9a1aa.scope"}, True),
        ({"cgroup": "/system.slice/not-llm.service"}, False),
        ({"cgroup": "/user.slice/user-1.slice/user@1.service"}, None),
        ({"pid": 4471}, True),
        ({"pid": 99}, None),
        ({"comm": "python3"}, True),
        ({"comm": "VLLM::EngineCor"}, True),
        ({"comm": "serve"}, True),
        ({"comm": "nginx"}, False),
        ({"comm": "postgres"}, False),
        ({"comm": "python3", "cgroup": "/system.slice/reportd.service"}, False),
        ({}, None),
    ],
    ids=str,
)
def test_whether_a_victim_is_ours(victim: dict[str, object], ours: bool | None) -> None:
    assert OURS.killed(**victim) is ours  # type: ignore[arg-type]


# In the answer.


def test_an_oom_kill_of_a_neighbour_is_not_ours() -> None:
    """The kernel took the database; the server was killed by somebody an hour later."""
    answer = verdict(
        log(*SGLANG_UP, DECODE, DECODE, DECODE),
        journal((0, "Started llm.service - LLM server."), (3600, KILLED),
                (3600, "llm.service: Failed with result 'signal'.")),
        kernel((10, "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
                    "task_memcg=/system.slice/postgres.service,task=postgres,pid=812,uid=26"),
               (10, "Out of memory: Killed process 812 (postgres) total-vm:91220032kB, anon-rss:60201304kB")),
        unit="llm.service",
    )  # fmt: skip
    assert answer.cause == "user-or-supervisor-sigkill"
    assert "host-ram-oom-kernel" in {ruled.cause for ruled in answer.ruled_out}


def test_a_neighbours_stop_that_took_too_long_is_not_ours() -> None:
    answer = verdict(
        log(*SGLANG_UP, DECODE, "IndexError is far", DECODE, ident="python3"),
        journal((0, "Stopping reportd.service - Reports..."),
                (90, "reportd.service: State 'stop-sigterm' timed out. Killing."),
                (90, "reportd.service: Killing process 12 (reportd) with signal SIGKILL."),
                (90, "reportd.service: Failed with result 'timeout'.")),
    )  # fmt: skip
    assert answer.cause != "stop-timeout-sigkill"


def test_a_neighbour_in_compose() -> None:
    rows = [line(text, number, ident="vllm-1") for number, text in enumerate(SGLANG_UP, 1)]
    other = [line("FATAL: out of memory", 20, ident="postgres-1"), line("postgres-1 exited with code 137", 21)]
    answer = verdict(log(*rows, *other, *[line(DECODE, n, ident="vllm-1") for n in range(30, 36)]))
    assert answer.cause in ("healthy-running", "unsettled")


def test_the_unit_of_a_record_is_the_subject() -> None:
    answer = verdict(
        record(Kind.SYSTEMCTL_SHOW, "Id=blue.service\nActiveState=failed\nExecMainPID=77\nResult=signal"),
        timed([(0, "green.service: Failed with result 'oom-kill'.")], name="j", ident="systemd"),
    )
    assert answer.service == "blue.service"
    assert answer.cause == "unsettled"


def test_a_container_that_a_record_names_owns_its_cgroup() -> None:
    answer = verdict(
        log(*SGLANG_START),
        record(Kind.KUBECTL_DESCRIBE, "Name:  llm-0\nContainers:\n  a:\n    Container ID:  containerd://8c1f0b7a88e24d53b9\n"),
        kernel((0, "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
                   "oom_memcg=/kubepods/8c1f0b7a88e24d53b9,task_memcg=/kubepods/8c1f0b7a88e24d53b9,task=serve,pid=5,uid=0")),
    )  # fmt: skip
    assert answer.cause == "cgroup-oom"
