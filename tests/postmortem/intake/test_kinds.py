"""What a source is, by its content and not by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftmark.postmortem.intake import Hints, read_bytes
from draftmark.postmortem.model import Kind, Source

DOCKER = {"Id": "a", "State": {"ExitCode": 137, "OOMKilled": False}, "HostConfig": {"Memory": 0}, "Config": {}}
POD = {"apiVersion": "v1", "kind": "Pod", "status": {"containerStatuses": []}}
ENTRY = {"__REALTIME_TIMESTAMP": "1772445600250000", "MESSAGE": "a\nb", "_PID": "7", "_COMM": "python3"}


def read(content: str | bytes) -> Source:
    return read_bytes("x", content.encode() if isinstance(content, str) else content, hints=Hints())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("Id=a.service\nActiveState=failed\nResult=timeout\nExecMainStatus=9\n", Kind.SYSTEMCTL_SHOW),
        (
            "Type=simple\nRestart=no\nEnvironment=A=b c\nResult=oom-kill\n\nId=b.service\nResult=success\n",
            Kind.SYSTEMCTL_SHOW,
        ),
        ("Result=oom-kill\n", Kind.SYSTEMCTL_SHOW),
        ("PATH=/bin\nHOME=/root\nA=b\n", Kind.LOG),
        (json.dumps([DOCKER], indent=4), Kind.DOCKER_INSPECT),
        (json.dumps(DOCKER), Kind.DOCKER_INSPECT),
        (json.dumps(POD), Kind.KUBECTL_JSON),
        (json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD]}, indent=1), Kind.KUBECTL_JSON),
        (json.dumps({"kind": "EventList", "items": []}), Kind.KUBECTL_JSON),
        (json.dumps({"a": 1}), Kind.UNUSABLE),
        (json.dumps([1, 2]), Kind.UNUSABLE),
        (json.dumps([DOCKER, POD]), Kind.UNUSABLE),
        ('"text"', Kind.LOG),
        (
            "Name:             llm-0\nNamespace:        llm\nStatus:           Failed\nEvents:\n  Type  Reason\n",
            Kind.KUBECTL_DESCRIBE,
        ),
        (
            "JobID    JobName  State ExitCode\n-------- -------- ----- --------\n1 llm OUT_OF_ME+ 0:125\n",
            Kind.SACCT,
        ),
        ("JobID|JobName|State|ExitCode|MaxRSS\n1|llm|OUT_OF_MEMORY|0:125|3G\n", Kind.SACCT),
        ("  PID  PPID COMMAND\n21987 21913 VLLM::EngineCore\n", Kind.PROCESSES),
        (
            "USER     PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nroot 1 0 0 1 1 ? S 1 1 init\n",
            Kind.PROCESSES,
        ),
        ("+---------+\n| NVIDIA-SMI 550.54   Driver Version: 550.54 |\n|----+\n", Kind.PROCESSES),
        ('# HELP a b\n# TYPE a counter\na_total{x="y"} 3\na_bucket{le="+Inf"} 1.5e3 1763618340000\n', Kind.METRICS),
        ('container_memory_working_set_bytes{pod="a"} 6.8702699520e+10 1763618340000\nup NaN\n', Kind.METRICS),
        ("[2026-03-02 10:00:00 TP0] a\n", Kind.LOG),
        ("| NVIDIA-SMI 550.54 |\n|---|\n" + "[2026-03-02 10:00:00 TP0] a server's log after it\n" * 9, Kind.LOG),
        ("  PID COMMAND\n" + "[2026-03-02 10:00:00 TP0] a server's log after it\n" * 9, Kind.LOG),
        (
            "$ kubectl describe pod a\nName: a\nNamespace: b\nStatus: Failed\nEvents: <none>\n",
            Kind.KUBECTL_DESCRIBE,
        ),
        ("[\n", Kind.LOG),
        ("{\n", Kind.LOG),
        ('{"log":"a\\n","stream":"stderr","time":"2026-03-02T10:00:00Z"}\n', Kind.LOG),
        ("one line\n", Kind.LOG),
        ("\0\0\0" * 5000 + "[2026-03-02 10:00:00 TP0] after a truncation\n", Kind.LOG),
        ("größer 日本語 " * 20, Kind.LOG),
    ],
)
def test_kinds(content: str, kind: Kind) -> None:
    assert read(content).kind is kind


def test_documents_have_their_lines() -> None:
    source = read(json.dumps([DOCKER], indent=4))
    assert source.document[0]["State"]["ExitCode"] == 137
    (line,) = [line for line in source.lines if '"ExitCode": 137,' in line.raw]
    assert json.dumps([DOCKER], indent=4).split("\n")[line.number - 1] == line.text


def test_tables_and_properties_are_not_peeled() -> None:
    source = read("Id=a.service\nResult=timeout\nDescription=[2026-03-02 10:00:00] x\n")
    assert source.lines[2].text == "Description=[2026-03-02 10:00:00] x"
    assert source.lines[2].number == 3


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_journal_entries_is_a_log(indent: int | None) -> None:
    second = {**ENTRY, "MESSAGE": "c"}
    source = read(json.dumps([ENTRY, second], indent=indent))
    assert source.kind is Kind.LOG
    assert [line.text for line in source.lines] == ["a", "b", "c"]
    assert {line.pid for line in source.lines} == {7}
    if indent:
        written = json.dumps([ENTRY, second], indent=indent).split("\n")
        assert '"MESSAGE": "c"' in written[source.lines[2].number - 1]
        assert source.lines[2].raw == "c"


def test_pretty_journal_entries_and_one_a_line() -> None:
    pretty = json.dumps(ENTRY, indent=2) + "\n" + json.dumps({**ENTRY, "MESSAGE": "c"}, indent=2) + "\n"
    assert [line.text for line in read(pretty).lines] == ["a", "b", "c"]
    lines = json.dumps(ENTRY) + "\n" + json.dumps({**ENTRY, "MESSAGE": "c"}) + "\n"
    assert [(line.number, line.text) for line in read(lines).lines] == [(1, "a"), (1, "b"), (2, "c")]
    assert [line.text for line in read(json.dumps(ENTRY)).lines] == ["a", "b"]


def test_exported_journals() -> None:
    export = (
        "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1772445600250000\n_PID=7\nUNIT=a.service\nMESSAGE=one\n\n"
        "__CURSOR=s=2\n__REALTIME_TIMESTAMP=1772445601250000\n_PID=8\nMESSAGE=two\n"
    )
    one, two = read(export).lines
    assert (one.text, one.number, one.pid, one.unit) == ("one", 5, 7, "a.service")
    assert (two.text, two.number, two.pid) == ("two", 10, 8)
    assert one.time == 1772445600.25
    verbose = "Mon 2026-03-02 10:00:00.250000 UTC [s=1;i=1]\n    _PID=7\n    MESSAGE=one\n    SYSLOG_IDENTIFIER=x\n"
    (line,) = read(verbose).lines
    assert (line.text, line.ident, line.pid, line.time) == ("one", "x", 7, 1772445600.25)


@pytest.mark.parametrize("depth", [10, 1000, 200_000])
def test_nested_json_breaks_nothing(depth: int) -> None:
    for content in ("[" * depth, "{" * depth, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        read(content)
        read(f"x\n{content}\n")


def test_large_documents_are_parsed_with_a_part_of_their_lines() -> None:
    items: list[dict[str, Any]] = [{**POD, "n": n, "filler": "x" * 100} for n in range(40_000)]
    source = read(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1))
    assert source.kind is Kind.KUBECTL_JSON
    assert len(source.document["items"]) == 40_000
    assert len(source.lines) < 2000
    assert source.total_lines > 100_000
