"""What belongs to a death and what does not: other times, zones, containers, and other people's words."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from draftmark.cli.compose_why import tables
from draftmark.errors import BadInputError
from draftmark.postmortem.diagnose import diagnose
from draftmark.postmortem.model import Kind, Source, Verdict

from .small import (
    DECODE,
    KILLED,
    SGLANG_UP,
    STARTED,
    UNIT,
    crash,
    document,
    journal,
    kernel,
    log,
    record,
    timed,
    verdict,
)

HOUR = 3600.0
SERVED = [*((float(n), text) for n, text in enumerate(SGLANG_UP)), *((20.0 + n, DECODE) for n in range(10))]
DIED = (40.0, KILLED)


def oom(at: float, *, cgroup: str = f"/system.slice/{UNIT}", comm: str = "python3", pid: int = 77) -> Source:
    return kernel(
        (
            at,
            f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            f"task_memcg={cgroup},task={comm},pid={pid},uid=0",
        ),
        (at, f"Out of memory: Killed process {pid} ({comm}) total-vm:9kB, anon-rss:9kB"),
    )


def served() -> Source:
    return timed(SERVED, name="service.log")


def memory(found: Verdict) -> bool:
    return tables().memory(found.cause)


def test_a_kill_at_the_time_of_the_death_is_its_cause() -> None:
    found = verdict(journal(STARTED, DIED), served(), oom(39))
    assert (found.cause, found.confidence) == ("host-ram-oom-kernel", "certain")


@pytest.mark.parametrize("at", [-20 * HOUR - 700, -2000.0, 3000.0, 40 * 24 * HOUR])
def test_a_kill_at_another_time_is_not(at: float) -> None:
    found = verdict(journal(STARTED, DIED), served(), oom(at))
    assert not memory(found), found.summary


def test_a_kill_in_another_time_zone_still_is() -> None:
    assert memory(verdict(journal(STARTED, DIED), served(), oom(39 + 2 * HOUR)))


def test_on_one_hosts_clock_two_hours_are_two_hours() -> None:
    same = [
        replace(source, lines=tuple(replace(line, host="gpu1") for line in source.lines))
        for source in (journal(STARTED, DIED), oom(39 + 2 * HOUR))
    ]
    assert not memory(verdict(*same))


@pytest.mark.parametrize("cgroup", ["/system.slice/trainer.service", "/user.slice/user-1000.slice/session-3.scope"])
def test_a_kill_of_somebody_else_while_the_server_serves_on(cgroup: str) -> None:
    assert not memory(verdict(served(), oom(22, cgroup=cgroup)))


def test_a_kernel_log_that_begins_after_the_death_rules_nothing_out() -> None:
    late = kernel((30 * 24 * HOUR, "usb 1-1: new device"))
    found = verdict(journal(STARTED, DIED), served(), late)
    assert found.cause == "unsettled"
    assert "kernel log" in {unread.source for unread in found.not_examined}


def test_a_sidecars_end_is_its_own() -> None:
    pods = {
        "kind": "Pod",
        "metadata": {"name": "llm-0"},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                _container("sglang", "lmsysorg/sglang:v0.5.17", 1, "Error"),
                _container("fluentbit", "fluent/fluent-bit:3", 137, "OOMKilled"),
            ],
        },
    }
    found = verdict(document(Kind.KUBECTL_JSON, pods), log(*SGLANG_UP, *crash("ValueError: bad token")))
    assert found.cause == "python-exception-scheduler"


def _container(name: str, image: str, code: int, reason: str) -> dict[str, object]:
    ended = {"terminated": {"exitCode": code, "reason": reason}}
    return {"name": name, "image": image, "restartCount": 1, "state": {"running": {}}, "lastState": ended}


def test_another_pods_eviction_is_its_own() -> None:
    events = record(
        Kind.KUBECTL_DESCRIBE, "Warning  Evicted  2m  kubelet  Evicted pod/redis-0: low on resource: memory"
    )
    assert verdict(events, served()).cause != "k8s-eviction"


@pytest.mark.parametrize(
    "request_line",
    [
        "Receive: obj=GenerateReqInput(rid='a', text='torch.OutOfMemoryError: CUDA out of memory. Tried')",
        "Received request cmpl-1: prompt: 'Out of memory: Killed process 1 (python)', params: SamplingParams(n=1)",
        "prompt: Not enough memory. Please try to increase --mem-fraction-static",
        """{"messages": [{"role": "user", "content": "an illegal memory access was encountered"}]}""",
    ],
)
def test_what_a_user_wrote_proves_nothing(request_line: str) -> None:
    found = verdict(journal(STARTED, DIED), log(*SGLANG_UP, DECODE, request_line, DECODE))
    assert found.cause == "unsettled", found.summary


@pytest.mark.parametrize("name", ["README.md", "ticket.markdown", "report.html"])
def test_a_text_for_people_is_no_evidence(name: str) -> None:
    rows = ["<!doctype html>"] if name.endswith("html") else ["# Notes", "", "- last month it was:"]
    prose = log(*rows, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", name=name)
    found = verdict(prose, served())
    assert not memory(found)
    assert name in {unread.source for unread in found.not_examined}


def test_a_service_that_is_picked_has_to_occur() -> None:
    sources = [journal(STARTED, DIED)]
    assert diagnose(sources, tables=tables(), unit="llm", named=True).service == UNIT
    with pytest.raises(BadInputError) as refused:
        diagnose(sources, tables=tables(), unit="nope", named=True)
    assert UNIT in refused.value.evidence


def test_no_expression_is_slow_on_its_own_hints() -> None:
    for sign in tables().signs:
        for hint in sign.hints:
            text = ((hint + " ") * 1500)[:1500] + "!"
            begin = time.process_time()
            sign.search(text)
            assert time.process_time() - begin < 1.0, sign.id


def test_every_expression_compiles() -> None:
    for sign in tables().signs:
        re.compile(sign.says)
