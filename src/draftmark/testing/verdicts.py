"""Verdicts made by hand, for the tests of what is said of them."""

from __future__ import annotations

from dataclasses import replace

from draftmark.model import Evidence
from draftmark.postmortem.model import (
    Candidate,
    Confidence,
    Consequence,
    Moment,
    Phase,
    RuledOut,
    Unread,
    Verdict,
)

_JOURNAL = "journal of llm.service"


def _journal(line: int, clock: str, said: str, writer: str = "systemd[1]") -> Evidence:
    time = f"2026-06-02T{clock}+0000"
    return Evidence(file=_JOURNAL, line=line, time=time, text=f"{time} gpu-node-07 {writer}: {said}")


def _service(line: int, clock: str, said: str) -> Evidence:
    time = f"2026-06-02 {clock}"
    return Evidence(file="service.log", line=line, time=time, text=f"[{time}] {said}")


SIGTERM = _service(
    1411, "03:10:16", "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
)
DRAINING = _service(1440, "03:11:42", "Gracefully exiting... Remaining number of requests 16.")
STOPPING = _journal(1, "03:10:16", "Stopping llm.service - SGLang server...")
TIMED_OUT = _journal(2, "03:11:46", "llm.service: State 'stop-sigterm' timed out. Killing.")
KILLING = _journal(3, "03:11:46", "llm.service: Killing process 41990 (sglang::schedul) with signal SIGKILL.")
EXITED = _journal(7, "03:11:47", "llm.service: Main process exited, code=killed, status=9/KILL")
RESULT = _journal(8, "03:11:47", "llm.service: Failed with result 'timeout'.")
NO_OOM = Evidence(file="kernel.log", line=None, time=None, text="no line of an OOM killer between 03:00 and 03:20")


def stop_timeout() -> Verdict:
    """A drain that outlived the unit's stop timeout, everything read."""
    return Verdict(
        cause="stop-timeout-sigkill",
        confidence=Confidence.CERTAIN,
        summary="systemd killed llm.service 90 s after it was told to stop (TimeoutStopSec=90s), "
        "while 16 requests were still being answered.",
        phase=Phase.SHUTDOWN,
        evidence=(TIMED_OUT, RESULT, DRAINING),
        ruled_out=(
            RuledOut("host-ram-oom-kernel", "the kernel log covers the minute and has no OOM kill", (NO_OOM,)),
            RuledOut("user-or-supervisor-sigkill", "systemd names itself as the sender", (KILLING,)),
        ),
        consequences=(
            Consequence("a process of the server was killed", KILLING),
            Consequence("the main process ended by SIGKILL", EXITED),
        ),
        advice=(
            "Raise TimeoutStopSec= above the longest answer, or bound the drain.",
            "Stop sending requests before the stop: take the server out of the load balancer first.",
        ),
        timeline=(
            Moment("stop", "systemd was asked to stop the unit", STOPPING),
            Moment("state", "the server begins to drain", SIGTERM),
            Moment("support", "16 requests left", DRAINING),
            Moment("cause", "the stop took too long; systemd kills", TIMED_OUT),
            Moment("consequence", "a process of the server was killed", KILLING),
            Moment("exit", "the main process ended", EXITED),
            Moment("exit", "systemd's own verdict", RESULT),
        ),
        service="llm.service",
        engine="sglang",
        engine_version="0.5.12",
        died=True,
        examined=("service.log", _JOURNAL, "kernel.log"),
    )


def unsettled() -> Verdict:
    """The same death with nothing but the application's log."""
    journal = "journalctl -u llm.service -o short-iso --since '2026-06-02 03:00'"
    kernel = "sudo journalctl -k -o short-iso --since '2026-06-02 03:00'"
    return Verdict(
        cause="unsettled",
        confidence=Confidence.UNSETTLED,
        summary="The log stops at 03:11:42 while 16 requests were draining; no line says what ended the server.",
        phase=Phase.SHUTDOWN,
        evidence=(DRAINING, SIGTERM),
        ruled_out=(RuledOut("python-exception-scheduler", "there is no traceback", ()),),
        not_examined=(
            Unread("unit journal", "not handed over", journal),
            Unread("kernel log", "not handed over", kernel),
        ),
        candidates=(
            Candidate("stop-timeout-sigkill", "a drain was running when the log stops", journal),
            Candidate("host-ram-oom-kernel", "a kill by the kernel leaves nothing in this log", kernel),
        ),
        timeline=(
            Moment("stop", "the server begins to drain", SIGTERM),
            Moment("state", "16 requests left", DRAINING),
        ),
        service=None,
        engine="sglang",
        died=None,
        examined=("service.log",),
    )


def everywhere(text: str) -> Verdict:
    """A verdict with this text in every place that foreign text can reach."""
    proof = Evidence(file=text, line=7, time=text, text=text)
    return Verdict(
        cause="stop-timeout-sigkill",
        confidence=Confidence.LIKELY,
        summary=text,
        phase=Phase.SERVING,
        evidence=(proof, proof),
        ruled_out=(RuledOut("cgroup-oom", text, (proof,)),),
        consequences=(Consequence(text, proof),),
        not_examined=(Unread(text, text, text),),
        candidates=(Candidate("systemd-oomd", text, text),),
        advice=(text,),
        timeline=(Moment("cause", text, proof), Moment("exit", text, replace(proof, time="2026-06-02 03:10:16"))),
        service=text,
        engine=text,
        engine_version=text,
        root_elsewhere=text,
        died=True,
        examined=(text,),
    )


def crowded(many: int) -> Verdict:
    """So many entries of everything."""
    base = stop_timeout()
    lines = tuple(
        _journal(n, f"03:{n % 60:02d}:00", f"rank {n}: {'x' * 300} RuntimeError: died") for n in range(many)
    )
    return replace(
        base,
        evidence=lines,
        ruled_out=tuple(RuledOut(f"cause-{n}", "something long speaks against it, " * 9, ()) for n in range(many)),
        consequences=tuple(Consequence(f"rank {n} died", line) for n, line in enumerate(lines)),
        not_examined=tuple(
            Unread(f"log {n}", "no permission", f"sudo cat /var/log/{n} {'y' * 90}") for n in range(many)
        ),
        candidates=tuple(Candidate(f"cause-{n}", "could be, " * 30, f"dmesg -T | grep {n}") for n in range(many)),
        advice=tuple(f"Do {n}. " * 30 for n in range(many)),
        timeline=tuple(Moment("consequence", f"rank {n} died", line) for n, line in enumerate(lines)),
    )
