"""One line of each format that somebody's carrier or logger writes, and what has to come out of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from draftmark.postmortem.intake import Hints, read_bytes
from draftmark.postmortem.model import Line

NONE = Hints()
AT = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC).timestamp()
YEAR = b"2026-03-02T09:00:00Z host systemd[1]: what tells the year\n"


def read(text: str) -> list[Line]:
    return list(read_bytes("service.log", text.encode(), hints=NONE).lines)


def one(text: str) -> Line:
    """The line, read behind one that tells the year."""
    lines = read_bytes("service.log", YEAR + text.encode(), hints=NONE).lines
    assert [line.number for line in lines] == [1, 2]
    return lines[1]


# Written, and: text, seconds after 2026-03-02T10:00:00Z (None: no time), and other attributes.
CASES: list[tuple[str, str, float | None, dict[str, Any]]] = [
    # journald and syslog
    (
        "Mar 02 10:00:00 gpu-07 systemd[1]: Stopping llm.service - SGLang server...",
        "Stopping llm.service - SGLang server...",
        0,
        {"ident": "systemd", "pid": 1, "host": "gpu-07", "unit": "llm.service", "stamp": "Mar 02 10:00:00"},
    ),
    (
        "2026-03-02T11:00:00+0100 gpu-07 systemd[1]: llm@a.service: Main process exited, code=killed",
        "llm@a.service: Main process exited, code=killed",
        0,
        {"unit": "llm@a.service"},
    ),
    (
        '2026-03-02T12:00:00+02:00 h python3[41802]:   File "x.py", line 3',
        '  File "x.py", line 3',
        0,
        {"pid": 41802},
    ),
    ("2026-03-02T10:00:00.250000+00:00 h kernel: oom", "oom", 0.25, {"ident": "kernel", "pid": None}),
    ("Mar 02 10:00:00.250000 h kernel: oom", "oom", 0.25, {"ident": "kernel"}),
    ("Mar  2 10:00:00 h VLLM::EngineCor[9]: x", "x", 0, {"ident": "VLLM::EngineCor", "pid": 9}),
    ("Mon 2026-03-02 10:00:00 UTC h llm.service[9]: x", "x", 0, {"unit": "llm.service", "pid": 9}),
    (
        "Mon 2026-03-02 10:00:00 UTC h init.scope[1]: a.service: x",
        "a.service: x",
        0,
        {"ident": "systemd", "unit": "a.service"},
    ),
    (
        "Mar 02 10:00:00 h (vllm)[9]: a.service: Failed at step EXEC",
        "a.service: Failed at step EXEC",
        0,
        {"unit": "a.service"},
    ),
    ("1772445600.500000 h python3[9]: x", "x", 0.5, {"ident": "python3"}),
    ("<30>Mar  2 10:00:00 h python3[7]: x", "x", 0, {"ident": "python3", "pid": 7}),
    (
        "<34>1 2026-03-02T10:00:00.003Z h su 12 ID47 - failed",
        "failed",
        0.003,
        {"ident": "su", "pid": 12, "host": "h"},
    ),
    ('<34>1 2026-03-02T10:00:00Z h su - - [a b="c"] failed', "failed", 0, {"ident": "su", "pid": None}),
    ("Mar  2 10:00:00 h kernel: [   12.345678] NVRM: Xid", "NVRM: Xid", 0, {"ident": "kernel", "clock": "wall"}),
    # other languages
    ("Mär 02 10:00:00 h systemd[1]: x", "x", 0, {"ident": "systemd"}),
    ("mars 02 10:00:00 h systemd[1]: x", "x", 0, {"host": "h"}),
    ("3月 02 10:00:00 h kernel: x", "x", 0, {"ident": "kernel"}),
    (" 3月 02 10:00:00 h kernel: x", "x", 0, {"ident": "kernel"}),
    ("мар 02 10:00:00 h kernel: x", "x", 0, {"ident": "kernel"}),
    ("Xyz 02 10:00:00 h kernel: x", "x", 0, {"ident": "kernel"}),
    # the kernel's ring buffer
    (
        "[Mon Mar  2 10:00:00 2026] NVRM: Xid (PCI:0000:9c:00): 48",
        "NVRM: Xid (PCI:0000:9c:00): 48",
        0,
        {"ident": "kernel"},
    ),
    ("[Mo Mär  2 10:00:00 2026] x", "x", 0, {}),
    ("[lun. mars  2 10:00:00 2026] x", "x", 0, {}),
    ("[lun mar  2 10:00:00 2026] x", "x", 0, {}),
    ("[一 3月  2 10:00:00 2026] x", "x", 0, {}),
    ("[月  3月  2 10:00:00 2026] x", "x", 0, {}),
    ("[пн мар  2 10:00:00 2026] x", "x", 0, {}),
    ("kern  :err   : [Mon Mar  2 10:00:00 2026] x", "x", 0, {"ident": "kernel"}),
    ("2026-03-02T10:00:00,250000+00:00 x", "x", 0.25, {}),
    # containers
    ("2026-03-02T10:00:00.250000000Z Loading model: x", "Loading model: x", 0.25, {"ident": "", "host": ""}),
    ('2026-03-02T10:00:00.250000000Z   File "a.py"', '  File "a.py"', 0.25, {}),
    ("2026-03-02T10:00:00.250000000Z stderr F   File", "  File", 0.25, {}),
    ("2026-03-02T11:00:00.123456789+01:00 stdout F x", "x", 0.123456789, {}),
    (
        "vllm-1  | Traceback (most recent call last):",
        "Traceback (most recent call last):",
        None,
        {"ident": "vllm-1"},
    ),
    ("vllm-1  |   File", "  File", None, {"ident": "vllm-1"}),
    ("vllm_1  | 2026-03-02T10:00:00.250000000Z x", "x", 0.25, {"ident": "vllm_1"}),
    ("\x1b[36mvllm-1  | \x1b[0mx", "x", None, {"ident": "vllm-1"}),
    ("[pod/llm-0/server] x", "x", None, {"ident": "llm-0/server"}),
    ("[llm-7f9c6-abcde/server] 2026-03-02T10:00:00.25Z x", "x", 0.25, {"ident": "llm-7f9c6-abcde/server"}),
    # launchers
    ("[1,0]<stderr>:Traceback", "Traceback", None, {"actor": "rank0"}),
    ("[prterun-n1-99@1,3]<stderr>: x", "x", None, {"actor": "rank3"}),
    ("[default3]:  File", " File", None, {"actor": "default3"}),
    ("[rank5]: Traceback (most recent call last):", "Traceback (most recent call last):", None, {"actor": "rank5"}),
    ("[rank5]:   File", "  File", None, {"actor": "rank5"}),
    (
        "[rank5]:[E302 10:00:00.250000000 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught",
        "[Rank 5] Watchdog caught",
        0.25,
        {"actor": "rank5", "level": "E"},
    ),
    ("[W1102 10:00:00.5 a.cpp:1] x", "x", -120 * 86400 + 0.5, {"level": "W"}),
    ("E0302 10:00:00.250000   123 file.cc:12] x", "x", 0.25, {"level": "E"}),
    ("I20260302 10:00:00.250000   123 file.cc:12] x", "x", 0.25, {"level": "I"}),
    # Ray and vLLM
    (
        "(RayWorkerWrapper pid=123, ip=10.0.0.2) ERROR 03-02 10:00:00 [worker.py:1] boom",
        "boom",
        0,
        {"actor": "RayWorkerWrapper pid=123 ip=10.0.0.2", "pid": 123, "host": "10.0.0.2", "level": "E"},
    ),
    (
        "(EngineCore_DP0 pid=882) ERROR 03-02 10:00:00 [core.py:708]   File",
        "  File",
        0,
        {"actor": "EngineCore_DP0 pid=882"},
    ),
    ("(Worker_TP1 pid=9)     return f()", "    return f()", None, {"actor": "Worker_TP1 pid=9"}),
    ("(VllmWorkerProcess pid=9) ERROR 03-02 10:00:00 a.py:226] x", "x", 0, {"actor": "VllmWorkerProcess pid=9"}),
    (
        "(MapWorker(MapBatches(vLLMEngineStageUDF)) pid=123, ip=10.0.0.2)   File",
        "  File",
        None,
        {"actor": "MapWorker(MapBatches(vLLMEngineStageUDF)) pid=123 ip=10.0.0.2", "pid": 123, "host": "10.0.0.2"},
    ),
    (
        "2026-03-02 10:00:00.250 (MapBatches(f)->MapBatches(g) pid=7) "
        "(EngineCore_DP0 pid=9) ERROR 03-02 09:59:59 [c.py:1]   File",
        "  File",
        0.25,
        {"actor": "MapBatches(f)->MapBatches(g) pid=7 EngineCore_DP0 pid=9", "pid": 7, "level": "E"},
    ),
    ("(ServeReplica:app:Deployment pid=1) x", "x", None, {"actor": "ServeReplica:app:Deployment pid=1"}),
    ("(Actor(rank=1, tp=0) pid=1, ip=fd00::2, job_id=01) x", "x", None, {"host": "fd00::2", "pid": 1}),
    ("\x1b[36m(RayWorkerWrapper pid=5)\x1b[0m x", "x", None, {"actor": "RayWorkerWrapper pid=5"}),
    ("[36m(RayWorkerWrapper pid=5)[0m x", "x", None, {"actor": "RayWorkerWrapper pid=5"}),
    ("(W pid=5) x [repeated 3x across cluster]", "x [repeated 3x across cluster]", None, {"actor": "W pid=5"}),
    ("(raylet) Spilled", "Spilled", None, {"actor": "raylet"}),
    ("(pid=123) x", "x", None, {"actor": "pid=123"}),
    ("(APIServer pid=1)", "", None, {"actor": "APIServer pid=1"}),
    ("WARNING 03-02 10:00:00 [loggers.py:116] x", "x", 0, {"level": "W", "stamp": "03-02 10:00:00"}),
    ("INFO 2026-03-02 10:00:00 [loggers.py:116] x", "x", 0, {"level": "I"}),
    ("2026-03-02T10:00:00.25Z INFO 03-02 09:59:59 [loggers.py:116] x", "x", 0.25, {"level": "I"}),
    ("INFO:     Started server process [311]", "Started server process [311]", None, {"level": "I"}),
    ("ERROR:    [Errno 98] x", "[Errno 98] x", None, {"level": "E"}),
    ("CRITICAL: x", "x", None, {"level": "F"}),
    ("ERROR:root:x", "x", None, {"level": "E"}),
    # SGLang
    ("[2026-03-02 10:00:00 DP0 PP0 TP0 EP0] Decode batch", "Decode batch", 0, {"actor": "DP0 PP0 TP0 EP0"}),
    ("[2026-03-02 10:00:00 DP0 TP0]   File", "  File", 0, {"actor": "DP0 TP0"}),
    ("[2026-03-02 10:00:00] ERROR:    x", "x", 0, {"actor": "", "level": "E"}),
    ("[2026-03-02 10:00:00.250] x", "x", 0.25, {"stamp": "2026-03-02 10:00:00.250"}),
    ("Mar 02 10:00:01 h python3[9]: [2026-03-02 10:00:00 TP3] x", "x", 1, {"actor": "TP3", "pid": 9}),
    # others
    (
        "2026-03-02T10:00:00.250000Z  INFO text_generation_router: a: b",
        "text_generation_router: a: b",
        0.25,
        {"level": "I"},
    ),
    ("2026-03-02T10:00:00Z ERROR text_generation_launcher: Shard 1 failed rank=1", None, 0, {"actor": "rank1"}),  # type: ignore[list-item]
    ("[TensorRT-LLM][ERROR] x", "x", None, {"level": "E"}),
    ("[03/02/2026-10:00:00] [TRT-LLM] [E] x", "x", 0, {"level": "E"}),
    ("[03/02/2026-10:00:00] [TRT-LLM] [RANK 3] [W] x", "x", 0, {"level": "W", "actor": "rank3"}),
    ("2026-03-02 10:00:00,250 - name.sub - ERROR - x", "x", 0.25, {"level": "E"}),
    ("2026-03-02 10:00:00,250\tERROR worker.py:12 -- x", "worker.py:12 -- x", 0.25, {"level": "E"}),
    ("2026-03-02 10:00:00.250 | WARNING  | m:f:1 - x", "x", 0.25, {"level": "W"}),
    ("2026-03-02 10:00:00.250 | SUCCESS  | __main__:<module>:12 - x - y", "x - y", 0.25, {"level": "I"}),
    ("2026-03-02 10:00:00.250 | a.b:<lambda>:1 - x", "x", 0.25, {"level": ""}),
    ("2026/03/02 10:00:00 x", "x", 0, {}),
    (
        "node1:1234:5678 [0] NCCL WARN Cuda failure 2",
        "NCCL WARN Cuda failure 2",
        None,
        {"host": "node1", "pid": 1234},
    ),
    ("[2026-03-02 10:00:00] n:12:34 [3] init.cc:99 NCCL WARN x", "NCCL WARN x", 0, {"host": "n", "pid": 12}),
    (
        'time=2026-03-02T03:00:00.25-07:00 level=ERROR source=a.go:1 msg="wait \\"x\\"" error="signal: killed"',
        'wait "x" source=a.go:1 error="signal: killed"',
        0.25,
        {"level": "E"},
    ),
    ('[GIN] 2026/03/02 - 10:00:00 | 500 | POST "/api"', '[GIN] 2026/03/02 - 10:00:00 | 500 | POST "/api"', 0, {}),
    # log viewers and their exports
    ("2026-03-02 10:00:00.250 | [2026-03-02 09:59:59 TP1] x", "x", 0.25, {"actor": "TP1"}),
    ("2026-03-02 10:00:00.250 |   File", "  File", 0.25, {}),
    ("| 2026-03-02 10:00:00.250 |   File", "  File", 0.25, {}),
    ("2026-03-02 10:00:00.250 | x |", "x |", 0.25, {}),  # one line is no table
    ("Mar 2, 2026 @ 10:00:00.250    [2026-03-02 09:59:59 TP1] x", "x", 0.25, {"actor": "TP1"}),
    ("Mar 2, 2026 @ 10:00:00.250      File", "  File", 0.25, {"stamp": "Mar 2, 2026 @ 10:00:00.250"}),
    ("Mar 2, 2026 @ 10:00:00.250   File", "  File", 0.25, {}),
    ("Mar 2, 2026 @ 10:00:00.250\t    return f()", "    return f()", 0.25, {}),
    ("Mar 2, 2026 @ 10:00:00.250", "", 0.25, {}),
    ("March 2nd 2026, 10:00:00.250\tx", "x", 0.25, {}),
    ('"Mar 2, 2026 @ 10:00:00.250","say ""x"""', 'say "x"', 0.25, {}),
    (
        '"2026-03-02T10:00:00.250Z","[2026-03-02 09:59:59 TP1]   File ""a.py"", line 1"',
        '  File "a.py", line 1',
        0.25,
        {"actor": "TP1"},
    ),
    ("2026-03-02T10:00:00.250Z,x, y", "x, y", 0.25, {}),
    ('1772445600250,"x"', "x", 0.25, {}),
    ("2026-03-02 10:00:00.250\t x", "x", 0.25, {}),
    ("2026-03-02 10:00:00.250\t   File", "  File", 0.25, {}),
    ("2026-03-02 10:00:00.250\t  File", "  File", 0.25, {}),
    ("2026-03-02T10:00:00.250Z x", "x", 0.25, {}),
    (
        "2026-03-02T10:00:00.250000+00:00 llm/server/0123456789abcdef0123456789abcdef   File",
        "  File",
        0.25,
        {"ident": "llm/server/0123456789abcdef0123456789abcdef"},
    ),
    ("2026-03-02 10:00:00.250 PST x", "x", 0.25, {}),
    ("Mon 2026-03-02 10:00:00 CET h systemd[1]: x", "x", 0, {"ident": "systemd", "host": "h"}),
    # what is no prefix
    ("(see the log (above) pid=1", "(see the log (above) pid=1", None, {"actor": ""}),
    ("(a) then (b pid=1) x", "(a) then (b pid=1) x", None, {"actor": ""}),
    ("took [10m] or [0m 5s]", "took [10m] or [0m 5s]", None, {}),
    ("March 32, 2026 @ 10:00:00 x", "March 32, 2026 @ 10:00:00 x", None, {}),
    ('"x","y"', '"x","y"', None, {}),
    ("1772445600250, 5", "1772445600250, 5", None, {}),
    ("| a | b |", "| a | b |", None, {}),
    ("ValueError: foo: bar", "ValueError: foo: bar", None, {"level": ""}),
    ('  File "x.py", line 3, in y', '  File "x.py", line 3, in y', None, {}),
    ("Type | Size", "Type | Size", None, {"ident": ""}),
    ("0: x", "0: x", None, {"actor": ""}),
    ("slot update: id  0 | task 3", "slot update: id  0 | task 3", None, {"ident": ""}),
    ("2026-13-45 10:00:00 x", "2026-13-45 10:00:00 x", None, {}),
    ("[2026-02-30 10:00:00] x", "[2026-02-30 10:00:00] x", None, {}),
    ('{"foo": 1}', '{"foo": 1}', None, {}),
    ("time is up", "time is up", None, {}),
    ("[Errno 98] address already in use", "[Errno 98] address already in use", None, {}),
]


@pytest.mark.parametrize(("written", "text", "after", "attributes"), CASES, ids=[case[0][:60] for case in CASES])
def test_a_line_of_each_format(
    written: str, text: str | None, after: float | None, attributes: dict[str, Any]
) -> None:
    line = one(written)
    if text is not None:
        assert line.text == text
    assert line.time == (None if after is None else pytest.approx(AT + after))
    assert line.clock == ("" if after is None else "wall")
    for name, value in attributes.items():
        assert getattr(line, name) == value, name


@pytest.mark.parametrize(
    ("written", "text", "seconds", "ident"),
    [
        ("[  155.090000] python3 invoked oom-killer: x", "python3 invoked oom-killer: x", 155.09, "kernel"),
        ("[12345.678901][  T123] x", "x", 12345.678901, "kernel"),
        ("[    5.100000] usb 1-1: new device", "usb 1-1: new device", 5.1, "kernel"),
        ("kern  :warn  : [  155.090000] x", "x", 155.09, "kernel"),
        ("<4>[  155.090000] x", "x", 155.09, "kernel"),
        ("6,1234,155090000,-;x", "x", 155.09, "kernel"),
        ("[  155.090000] lab systemd[1]: Started x", "Started x", 155.09, "systemd"),
        ("1.02.281.580 I srv  main: x", "srv  main: x", 62.28158, ""),
        ("0.00.129.000 W      log_info: x", "log_info: x", 0.129, ""),
    ],
)
def test_clocks_that_count_from_a_start(written: str, text: str, seconds: float, ident: str) -> None:
    line = one(written)
    assert (line.text, line.clock, line.ident) == (text, "relative", ident)
    assert line.time == pytest.approx(seconds)


def journal(**fields: Any) -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": "1772445600250000", "_HOSTNAME": "h", **fields})


def test_a_journal_entry_keeps_its_fields() -> None:
    line = one(
        journal(
            MESSAGE="llm.service: Main process exited, code=killed, status=9/KILL",
            MESSAGE_ID="98e322203f7a4ed290d09fe03c09fe15",
            UNIT="llm.service",
            _SYSTEMD_UNIT="init.scope",
            SYSLOG_IDENTIFIER="systemd",
            _PID="1",
            EXIT_CODE="killed",
            EXIT_STATUS="9",
            INVOCATION_ID="aa",
        )
    )
    assert line.text.startswith("llm.service: Main")
    assert (line.ident, line.pid, line.unit, line.host) == ("systemd", 1, "llm.service", "h")
    assert line.time == pytest.approx(AT + 0.25)
    wanted = {"EXIT_CODE": "killed", "EXIT_STATUS": "9", "INVOCATION_ID": "aa", "UNIT": "llm.service"}
    assert wanted.items() <= dict(line.fields).items()
    assert line.fields["MESSAGE_ID"] == "98e322203f7a4ed290d09fe03c09fe15"


def test_a_journal_entry_of_the_service_itself() -> None:
    line = one(
        journal(
            MESSAGE="[2026-03-02 10:00:00 TP0] \x1b[31mboom\x1b[0m",
            _SYSTEMD_UNIT="llm.service",
            _COMM="python3",
            _PID="7",
            _SOURCE_REALTIME_TIMESTAMP="1772445601000000",
        )
    )
    assert (line.text, line.actor, line.unit, line.ident, line.pid) == ("boom", "TP0", "llm.service", "python3", 7)
    assert line.time == AT + 1


def test_a_record_is_shown_by_what_it_says() -> None:
    line = one(journal(MESSAGE="[2026-03-02 10:00:00 TP0] boom", _PID="7"))
    assert (line.raw, line.stamp) == ("[2026-03-02 10:00:00 TP0] boom", "2026-03-02T10:00:00.250000+00:00")
    escaped = journal(MESSAGE='say "x"', _PID="7")
    assert one(escaped).raw == escaped


def test_bytes_as_numbers_kernel_lines_and_several_lines_in_one_entry() -> None:
    line = one(journal(MESSAGE=list(b"caf\xc3\xa9 \xff"), _TRANSPORT="kernel"))
    assert (line.text, line.ident) == ("café \ufffd", "kernel")
    lines = read(
        YEAR.decode() + journal(MESSAGE="Traceback (most recent call last):\n  File\nValueError: x", _PID="7")
    )[1:]
    assert [line.text for line in lines] == ["Traceback (most recent call last):", "  File", "ValueError: x"]
    assert {line.number for line in lines} == {2}
    assert {line.pid for line in lines} == {7}


def test_a_docker_json_file_puts_cut_lines_together() -> None:
    def entry(text: str, stream: str = "stderr") -> str:
        return json.dumps({"log": text, "stream": stream, "time": "2026-03-02T10:00:00.25Z"})

    lines = read(
        "\n".join(
            [entry("[2026-03-02 10:00:00 TP1] one "), entry("else\n", "stdout"), entry("line\n"), entry("two\n")]
        )
    )
    assert [(line.number, line.text, line.actor) for line in lines] == [
        (2, "else", ""),
        (1, "one line", "TP1"),
        (4, "two", ""),
    ]


def test_cri_puts_cut_lines_together() -> None:
    text = (
        "2026-03-02T10:00:00.1Z stderr P Out of \n2026-03-02T10:00:00.2Z stdout F other\n"
        "2026-03-02T10:00:00.3Z stderr F memory\n2026-03-02T10:00:00.4Z stderr P cut off"
    )
    assert [(line.number, line.text) for line in read(text)] == [(2, "other"), (1, "Out of memory"), (4, "cut off")]


@pytest.mark.parametrize(
    ("entry", "text", "actor", "level"),
    [
        (
            {
                "asctime": "2026-03-02 10:00:00,250",
                "levelname": "ERROR",
                "processName": "EngineCore_0",
                "process": 12,
                "message": "x",
            },
            "x",
            "EngineCore_0 pid=12",
            "E",
        ),
        (
            {"timestamp": "2026-03-02T10:00:00.25Z", "level": "ERROR", "fields": {"message": "x"}, "target": "t"},
            "x",
            "",
            "E",
        ),
        ({"timestamp": "2026-03-02T10:00:00.25Z", "level": "WARN", "message": "x", "target": "t"}, "x", "", "W"),
        ({"type": "log", "time": 1772445600.25, "level": "error", "msg": "x"}, "x", "", "E"),
        ({"time": 1772445600250, "level": "info", "msg": "x"}, "x", "", "I"),
        ({"timestamp": "2026-03-02T10:00:00.25Z", "severity": "ERROR", "textPayload": "x"}, "x", "", "E"),
    ],
)
def test_json_loggers(entry: dict[str, Any], text: str, actor: str, level: str) -> None:
    line = one(json.dumps(entry))
    assert (line.text, line.actor, line.level) == (text, actor, level)
    assert line.time == pytest.approx(AT + 0.25)


def test_a_json_logger_keeps_the_exception() -> None:
    entry = {
        "asctime": "2026-03-02 10:00:00,0",
        "levelname": "ERROR",
        "message": "failed",
        "exc_info": "Traceback\n  File\nKeyError",
    }
    assert [line.text for line in read(YEAR.decode() + json.dumps(entry))[1:]] == [
        "failed",
        "Traceback",
        "  File",
        "KeyError",
    ]


@pytest.mark.parametrize(
    ("make", "ident", "actor"),
    [
        ("{n}: line {n}", "", "task{n}"),
        ("llm  | line {n}", "llm", ""),
        ("llm.1.abc@node1    | line {n}", "llm.1.abc@node1", ""),
        ("0|llm      | line {n}", "llm", ""),
        ("10:00:00 llm | line {n}", "llm", ""),
        ("llm-7f9c6-abcde server line {n}", "llm-7f9c6-abcde/server", ""),
    ],
)
def test_prefixes_that_look_like_text_count_where_most_lines_have_them(make: str, ident: str, actor: str) -> None:
    lines = read("\n".join(make.format(n=n % 4) for n in range(40)))
    assert [line.text for line in lines] == [f"line {n % 4}" for n in range(40)]
    assert [line.ident for line in lines] == [ident] * 40
    assert [line.actor for line in lines] == [actor.format(n=n % 4) for n in range(40)]


def test_bars_that_close_the_lines_of_a_table_go() -> None:
    shown = "2026-06-12 12:13:18.{n:03} | {text} |"
    texts = ["[2026-06-12 03:02:00 TP1] Traceback (most recent call last):", "  File", "    return a |", "x  ", ""]
    lines = read("\n".join(shown.format(n=n, text=text) for n, text in enumerate(texts)))
    expected = ["Traceback (most recent call last):", "  File", "    return a |", "x", ""]
    assert [line.text for line in lines] == expected
    assert lines[0].raw.endswith(" |")
    open_ended = "\n".join(f"2026-06-12 12:13:18.000 | step {n} |{' x' * (n % 3)}" for n in range(9))
    assert [line.text for line in read(open_ended)][::3] == ["step 0 |", "step 3 |", "step 6 |"]


@pytest.mark.parametrize("label", ["{n}: ", "{n:2}: ", "{n:02}: "])
def test_labels_of_srun_count_though_slurm_speaks_between_them(label: str) -> None:
    task = label.format(n=3)
    lines = read(
        "srun: job 8812 queued and waiting for resources\nsrun: job 8812 has been allocated resources\n"
        f"{task}[2026-03-02 06:40:53 TP5] one\n{task}  File\n+ echo done\n"
        "slurmstepd: error: *** STEP 8812.0 ON gpu12 CANCELLED AT 2026-03-02T06:49:11 ***\n"
        "slurmstepd-gpu12: error: x\nsrun: error: gpu12: task 3: Killed\n"
    )
    assert [(line.text, line.actor) for line in lines[2:5]] == [
        ("one", "task3 TP5"),
        ("  File", "task3"),
        ("+ echo done", ""),
    ]
    assert lines[5].text.startswith("slurmstepd: error: ***")
    assert [line.actor for line in lines[5:]] == ["", "", ""]


def test_numbers_before_a_colon_are_text_without_slurm() -> None:
    lines = read("1: one\n2: two\na\nb\nc\nd\n")
    assert [line.text for line in lines[:2]] == ["1: one", "2: two"]


def test_carriage_returns_and_records_behind_progress_bars() -> None:
    bar = "Loading:  50%|█████     | 3/6 [00:01<00:01,  2.5it/s]"
    text = f"a\r\n{bar}\r{bar}[2026-03-02 10:00:00 TP0] done\r\n\r\nz"
    assert [(line.number, line.text) for line in read(text)] == [
        (1, "a"),
        (2, bar),
        (2, bar),
        (2, "done"),
        (3, ""),
        (4, "z"),
    ]
    assert read(text)[3].actor == "TP0"


def test_escapes_nuls_marks_and_utf16() -> None:
    assert read("\x1b[31;1mE\x1b[0m\x1b]0;title\x07x\x00y\x1b[2K")[0].text == "Exy"
    plain = "[2026-03-02 10:00:00 TP0] größer\nb\n"
    for encoded in (plain.encode("utf-8-sig"), plain.encode("utf-16"), b"\xfe\xff" + plain.encode("utf-16-be")):
        lines = read_bytes("x", encoded, hints=NONE).lines
        assert [line.text for line in lines] == ["größer", "b"]
        assert [line.number for line in lines] == [1, 2]
    assert read_bytes("x", "a\xe9b".encode("latin-1"), hints=NONE).lines[0].text == "a\ufffdb"


def test_raw_can_be_shown_anywhere() -> None:
    line = read("\x1b[31mred\x1b[0m\x07\ttab" + "y" * 3000)[0]
    assert line.raw.startswith("red\ufffd\ttab")
    assert len(line.raw) == 2000


def test_a_hint_far_out_in_a_long_line_is_shown() -> None:
    text = "x" * 5000 + " torch.OutOfMemoryError " + "y" * 20_000 + " the end of it"
    lines = read_bytes("x", text.encode(), hints=Hints(("OutOfMemoryError", "the end of"))).lines
    assert "OutOfMemoryError" in lines[0].raw
    assert "OutOfMemoryError" in lines[0].text
    assert any("the end of" in line.raw for line in lines[1:])
    assert {line.number for line in lines} == {1}
    assert all(len(line.text) <= 8000 and len(line.raw) <= 2000 for line in lines)


def test_years_are_guessed_by_what_is_dated_nearby() -> None:
    stamps = ("2024-12-31T23:59:00Z", "Dec 31 23:59:59", "Jan 01 00:00:01")
    a, b, c = read("\n".join(f"{stamp} host systemd[1]: x" for stamp in stamps))
    assert b.time == pytest.approx(datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    assert c.time == pytest.approx(datetime(2025, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp())
    assert a.time is not None


def test_without_a_year_anywhere_no_line_is_from_the_future() -> None:
    now = datetime.now(UTC).timestamp()
    for month in ("Jan", "Apr", "Jul", "Oct", "Dec"):
        (line,) = read(f"{month} 15 10:00:00 host systemd[1]: x")
        assert line.time is not None
        assert now - 367 * 86400 < line.time < now + 2 * 86400


CLOUD = """\
ERROR 2025-04-07T19:13:52.541718006Z ./entrypoint.sh: line 48:    27 Killed    python3 -m sglang.launch_server
ERROR 2025-04-07T19:13:52.317869663Z KeyError: 'layers.55.input_scale'
ERROR 2025-04-07T19:13:52.317862026Z     param = params_dict[name]
ERROR 2025-04-07T19:13:52.317811Z [2025-04-07 19:13:52 TP1] Scheduler hit an exception: Traceback (most recent)
INFO 2025-04-07T19:13:38.104518411Z [2025-04-07 19:13:38 TP1] Load weight begin. avail mem=78.50 GB
"""


def test_a_cloud_console_shows_the_newest_line_first() -> None:
    source = read_bytes("service.log", CLOUD.encode(), hints=NONE)
    assert [line.number for line in source.lines] == [5, 4, 3, 2, 1]
    assert source.lines[2].text == "    param = params_dict[name]"
    assert source.lines[3].text == "KeyError: 'layers.55.input_scale'"
    assert [line.level for line in source.lines[2:]] == ["", "", ""]  # the severity is only that of the stream
    times = [line.time for line in source.lines]
    assert times == sorted(times, key=lambda time: time or 0)


@pytest.mark.parametrize(
    "lines",
    [
        ["2026-01-01T00:00:03Z c", "2026-01-01T00:00:02Z b", "2026-01-01T00:00:02Z b"],  # two times: an accident
        ["2026-01-01T00:00:03Z c", "2026-01-01T00:00:02Z b", "2026-01-01T00:00:01Z a", "2026-01-01T00:00:02Z d"],
        ["2026-01-01T00:00:03Z c", "  more", "2026-01-01T00:00:02Z b", "  more", "2026-01-01T00:00:01Z a"],
    ],
)
def test_lines_that_are_not_plainly_newest_first_stay_as_they_are(lines: list[str]) -> None:
    source = read_bytes("service.log", "\n".join(lines).encode(), hints=NONE)
    assert [line.number for line in source.lines] == list(range(1, len(lines) + 1))
