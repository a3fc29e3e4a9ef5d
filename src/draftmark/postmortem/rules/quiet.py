"""No failure speaks for itself: clean stops, signals without a sender, hangs, clients, and nothing at all."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.postmortem.claims import Claim, certain_if, unique
from draftmark.postmortem.ending import Ending, signal_name
from draftmark.postmortem.events import Event
from draftmark.postmortem.model import Confidence, Line, Phase
from draftmark.postmortem.phases import last_phase
from draftmark.postmortem.scene import Scene, Stream

_STALLS = 3  # of vLLM's minute-long waits: one or two are compilation


def claims(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """In order of weight; the first that holds is the answer when nothing else is."""
    for rule in (
        _clean_stop,
        _asked_by_signal,
        _killed,
        _hang,
        _exit_status,
        _client,
        _host_down,
        _scarce,
        _running,
        _stopped_log,
    ):
        yield from rule(scene, ending)


def _drains(scene: Scene) -> list[Event]:
    return scene.events("drain")


def _remaining(scene: Scene) -> int | None:
    drains = _drains(scene)
    return int(drains[-1].values["remaining"]) if drains else None


def _last_log_lines(scene: Scene) -> list[Line]:
    """What each server said last; what its supervisor did afterwards is told by the ending."""
    last = (stream.last for stream in scene.servers)
    return [line for line in last if line is not None and line.ident != "systemd"]


def _clean_stop(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """It was asked to stop, and did: SGLang's own SIGKILL at the end included."""
    if scene.events("user-manager") or _signalled_outside(scene, ending):
        return
    remaining = _remaining(scene)
    teardown = scene.signs("sglang.killtree")
    asked = ending.stops or ending.asked
    tidy = [*scene.signs("systemd.success"), *scene.events("clean-exit", "down")]
    term_children = ending.child_signal == 15
    if remaining == 0 or (ending.asked and teardown and (remaining in (None, 0) or term_children)):
        proof = [*(d.line for d in _drains(scene)[-1:]), *(t.line for t in teardown[-1:]), *ending.lines]
        killed = (
            " SGLang then ends its own process tree with SIGKILL: 9/KILL or 137 is its normal end."
            if teardown
            else ""
        )
        yield Claim(
            cause="healthy-exit",
            confidence=certain_if(
                not scene.records.pod
            ),  # a pod is also stopped for reasons that are told elsewhere
            summary=f"It was asked to stop, finished its requests and ended.{killed}",
            lines=unique([*proof, *(a.line for a in asked[:1])]),
            phase=Phase.SHUTDOWN,
        )
    elif ending.stops and not remaining and _ended_tidily(ending, tidy):
        yield Claim(
            cause="healthy-exit",
            confidence=certain_if(not scene.records.pod),
            summary="It was asked to stop, and did in time.",
            lines=unique([*(s.line for s in ending.stops[-1:]), *(t.line for t in tidy[:2]), *ending.lines[:2]]),
            phase=Phase.SHUTDOWN,
        )
    elif _own_stop(scene) and not ending.known and tidy:
        yield Claim(
            cause="healthy-exit",
            confidence=Confidence.LIKELY,
            summary="It was asked to stop and closed in order; who asked is not in what was read.",
            lines=unique([*(a.line for a in ending.asked[:1]), *(t.line for t in tidy[-2:])]),
            phase=Phase.SHUTDOWN,
        )


def _signalled_outside(scene: Scene, ending: Ending) -> bool:
    """Whether the unit's journal shows an end that systemd was not asked for."""
    ended = scene.signs("systemd.main-exited", "systemd.success")
    served = any(event.role in ("traffic", "ready") for stream in scene.servers for event in stream.events)
    asked = ending.asked or scene.events("clean-exit", "term") or served
    return bool(ended) and bool(asked) and not ending.stops and not scene.events("restart")


def _own_stop(scene: Scene) -> bool:
    """The server's own word that a stop began at its front door, or that it simply closes."""
    asked = [e for e in scene.events("stop") if e.sign.voice == "app"]
    return not asked or any("API server" in e.line.text or e.sign.id != "vllm.stop" for e in asked)


def _ended_tidily(ending: Ending, tidy: list[Event]) -> bool:
    if ending.signal == 9 or ending.child_signal == 9 or ending.result == "timeout":
        return False
    return bool(tidy) or ending.signal in (15, 2, 1) or ending.status in (0, 143, 130)


def _asked_by_signal(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """SIGTERM without a stop of its unit: a session that ended, a scheduler, somebody."""
    manager = scene.events("user-manager")
    operator = [e for e in scene.events("operator") if "kill" in e.values["command"].lower()]
    if (ending.stops and not manager) or (ending.result == "timeout" and not scene.journal_read):
        return
    terms = [e for e in scene.events("term", "stop", "clean-exit") if e.sign.voice == "app"]
    if _signalled_outside(scene, ending):
        terms += scene.signs("systemd.success")
    by_signal = ending.signal in (15, 1, 2) or ending.status in (143, 130) or ending.child_signal == 15
    if not (terms or by_signal):
        return
    proof = [
        *(m.line for m in [*manager[:2], *operator[-1:]]),
        *(t.line for t in terms[:2]),
        *ending.lines[:2],
        *ending.child_lines[:1],
    ]
    engine_first = bool(terms) and terms[0].sign.id == "vllm.stop" and "API server" not in terms[0].line.text
    journal = scene.journal_read
    said = any(term.role == "term" for term in terms)
    if manager or by_signal or engine_first or journal or said:
        how = "It was ended by SIGTERM."
        if scene.journal_read:
            how = "It was ended by SIGTERM without an ordinary stop of its unit."
        who = " The sender is not in what was read."
        if manager:
            who = " The user's session manager stopped at the same time."
        elif operator:
            who = f" Somebody ran `{operator[-1].values['command'][:80]}`."
        yield Claim(
            cause="user-or-supervisor-sigterm",
            confidence=certain_if(bool(manager)),
            summary=f"{how}{who}",
            lines=unique(proof),
            phase=last_phase(scene) or Phase.SERVING,
        )


def _killed(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """SIGKILL, and nothing that explains it."""
    child_only = ending.signal != 9 and ending.child_signal == 9
    if ending.signal != 9 and ending.child_signal != 9:
        return
    proof = unique([*(ending.child_lines if child_only or not ending.lines else ending.lines), *ending.child_lines])
    operator = [e for e in scene.events("operator") if "kill" in e.values["command"].lower()]
    unified = scene.events("unified-memory")
    victim = "A process of the server" if child_only else "The server"
    if operator:
        yield Claim(
            cause="user-or-supervisor-sigkill",
            confidence=Confidence.LIKELY,
            summary=f"{victim} was killed by SIGKILL, and somebody ran `{operator[-1].values['command'][:80]}`.",
            lines=unique([operator[-1].line, *proof]),
            phase=last_phase(scene),
        )
    elif unified and _loading(scene):
        yield Claim(
            cause="host-ram-oom-kernel",
            confidence=Confidence.LIKELY,
            summary=f"{victim} was killed by SIGKILL while it loaded weights on a board whose GPU shares the "
            f"host's RAM, and nobody "
            "asked it to stop. The kernel log was not read: it would settle it.",
            lines=unique([*proof, unified[0].line]),
            phase=Phase.STARTUP,
        )
    elif ending.stops or (_remaining(scene) or 0) > 0:
        yield _killed_while_stopping(scene, ending, proof)
    elif scene.kernel_read:
        yield Claim(
            cause="user-or-supervisor-sigkill",
            confidence=Confidence.LIKELY,
            summary=f"{victim} was killed by SIGKILL. The kernel log shows no OOM kill of it and no stop timed "
            f"out: somebody or "
            "something sent it; who is not in what was read.",
            lines=proof,
            phase=last_phase(scene),
        )
    else:
        yield Claim(
            cause="unsettled",
            confidence=Confidence.UNSETTLED,
            summary=f"{victim} was killed by SIGKILL; nothing that was read says by whom or why. SIGKILL alone "
            f"proves no "
            "out-of-memory.",
            lines=proof,
            phase=last_phase(scene),
        )


def _killed_while_stopping(scene: Scene, ending: Ending, proof: list[Line]) -> Claim:
    remaining = _remaining(scene)
    inside = f" with {remaining} requests still running" if remaining else ""
    return Claim(
        cause="unsettled",
        confidence=Confidence.UNSETTLED,
        summary=f"It was being stopped{inside} when SIGKILL ended it: most likely the supervisor's patience was "
        f"over, but "
        "its line for that was not read.",
        lines=unique([*proof, *(s.line for s in ending.stops[-1:]), *(d.line for d in _drains(scene)[-1:])]),
        phase=Phase.SHUTDOWN,
    )


def _loading(scene: Scene) -> bool:
    """Whether the log's last step was loading weights."""
    steps = [e.role for e in scene.events("weights-begin", "loading", "weights-end", "ready", "pool")]
    return bool(steps) and steps[-1] in ("weights-begin", "loading")


def _hang(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Alive, and doing nothing."""
    stalls = scene.events("stall")
    unhealthy = scene.events("unhealthy")
    dead_engine = scene.events("fatal")
    d_state = scene.signs("systemd.still-around", "kernel.hung-task")
    alive = ending.running or (not ending.known and not scene.events("teardown", "clean-exit", "down"))
    figures = scene.events("memory-figure")
    low = [f for f in figures if _near_zero(f)][-3:] if figures and _near_zero(figures[-1]) else []
    ill = [c for c in scene.records.containers if c.running and c.health == "unhealthy"]
    waits = scene.signs("process.waits")
    slow = stalls or unhealthy or d_state or waits or scene.signs("vllm.rpc", "sglang.watchdog")
    if low and slow and alive:
        yield Claim(
            cause="host-ram-exhaustion-stall",
            confidence=Confidence.LIKELY,
            summary="Steps stall while the host's available memory is near zero; nothing was killed.",
            lines=unique(
                [
                    *(f.line for f in reversed(low)),
                    *(s.line for s in [*stalls[:2], *unhealthy[:1], *d_state[:1], *waits[:1]]),
                ]
            ),
            phase=Phase.SERVING,
            died=False,
        )
    elif alive and (ill or len(stalls) >= _STALLS or unhealthy or d_state) and (ill or not _served_last(scene)):
        yield Claim(
            cause="hang-not-crash",
            confidence=certain_if(bool(ending.running)),
            summary="The process is there, but it makes no progress: no death is recorded.",
            lines=unique(
                [
                    *(c.lines["health"] for c in ill if "health" in c.lines),
                    *(e.line for e in unhealthy if e.sign.id == "sglang.health"),
                    *(e.line for e in unhealthy[-1:]),
                    *(s.line for s in stalls[-2:]),
                    *(d.line for d in d_state[:2]),
                    *(f.line for f in dead_engine[:1]),
                ]
            ),
            phase=last_phase(scene) or Phase.SERVING,
            died=False,
        )


_NEAR_ZERO = 0.01  # of the RAM
_NEAR_ZERO_BYTES = 512 << 20
_STALLED_PERCENT = 50.0  # of the last ten seconds in which every task waited for memory (PSI `full`)


def _near_zero(event: Event) -> bool:
    """Whether a figure says that the host has no memory left."""
    values = event.values
    if "kib" in values:
        return int(values["kib"]) << 10 < _NEAR_ZERO_BYTES
    if "bytes" in values:
        return float(values["bytes"]) < _NEAR_ZERO_BYTES
    if "size" in values:
        return float(values["size"]) * (1 << 20 if values["unit"] in "Mm" else 1 << 30) < _NEAR_ZERO_BYTES
    if "stalled" in values:
        return float(values["stalled"]) > _STALLED_PERCENT
    if "used" in values:
        return int(values["used"]) > (1 - _NEAR_ZERO) * int(values["total"])
    return int(values["left"]) < _NEAR_ZERO * int(values["total2"])


def _served_last(scene: Scene) -> bool:
    """Whether requests were answered after the last sign of trouble."""
    for stream in scene.servers:
        roles = [e.role for e in stream.events if e.role in ("traffic", "stall", "unhealthy")]
        if roles and roles[-1] == "traffic" and roles[-3:] == ["traffic"] * 3:
            return True
    return False


def _exit_status(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """It exited by itself, or by another signal, and did not say why."""
    if ending.stops or (ending.status == 0 and ending.running) or not (ending.known or ending.restarted):
        return
    if ending.restarted and not ending.known:
        how = f"was restarted {ending.restarted} times by its supervisor"
    elif ending.result == "timeout" and not scene.journal_read:
        how = (
            "was ended by systemd after a time-out (its result says so; of a start, a stop or a run time, it "
            "does not say)"
        )
    elif ending.signal is not None:
        how = f"was ended by {signal_name(ending.signal)}"
    elif ending.status is not None:
        how = f"exited with status {ending.status}"
    else:
        how = "lost a process"
    yield Claim(
        cause="unsettled",
        confidence=Confidence.UNSETTLED,
        summary=f"The server {how}; no line that was read says why.",
        lines=unique([*ending.lines, *ending.child_lines, *_last_log_lines(scene)]),
        phase=last_phase(scene),
    )


def _client(scene: Scene, ending: Ending) -> Iterator[Claim]:
    clients = [s for s in scene.streams if s.client]
    said = [(f.line, f.support) for s in clients for f in s.faults]
    said += [(e.line, []) for s in clients for e in s.events if e.role in ("killed", "exit-code")]
    if said and not ending.known:
        serving = any(_served(s) for s in scene.servers)
        yield Claim(
            cause="client-side-failure",
            confidence=Confidence.LIKELY,
            summary="The client failed"
            + (" while the server's log goes on." if serving else "; no log of the server's shows a failure."),
            lines=unique([said[0][0], *said[0][1], *(line for line, _ in said[1:3])]),
            phase=Phase.SERVING,
            died=False,
        )


def _served(stream: Stream) -> bool:
    return any(e.role == "traffic" for e in stream.events)


def _host_down(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """The host went down or was started again, and the service's own end is in no line."""
    downs = scene.events("host-stop")
    if downs and not ending.known:
        yield Claim(
            cause="unsettled",
            confidence=Confidence.UNSETTLED,
            summary="The host went down or was started again, and its journal breaks off before: what ended the "
            "service, and "
            "the host, is not in what was read.",
            lines=unique([*(d.line for d in downs[:2]), *_last_log_lines(scene)]),
            phase=last_phase(scene),
        )


def _scarce(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Out of descriptors again and again: connections are refused while the engine lives."""
    short = [f for f in scene.faults if f.cause == "fd-limit"]
    if len(short) > 1 and not ending.known:
        yield Claim(
            cause="fd-limit",
            confidence=Confidence.LIKELY,
            summary="The server has no file descriptor left and cannot take connections; its process lives.",
            lines=unique([short[0].line, *short[0].support]),
            phase=short[0].phase,
            died=False,
        )


def _running(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Nothing died."""
    if (ending.known and not ending.running) or ending.asked or ending.restarted:
        return
    if not ending.running and _cleaned_up(scene):
        return
    traffic = [e for s in scene.servers for e in s.events if e.role in ("traffic", "ready")]
    noise = scene.events("noise")
    survived = [f for f in scene.faults if f.survived]
    if ending.running or (traffic and (noise or survived)):
        odd = [n.line for n in noise[:2]] + [f.line for f in survived[:2]]
        alarming = " What looks alarming in its log is ordinary, or was survived." if odd else ""
        unit = scene.records.unit
        state = [unit.lines["ActiveState"]] if unit and "ActiveState" in unit.lines else []
        yield Claim(
            cause="healthy-running",
            # A state of "running" does not say that it works: only the unit's own journal with it does.
            confidence=certain_if(bool(ending.running) and scene.journal_read and not _blind(scene)),
            summary=f"No death is recorded: the log ends in ordinary service.{alarming}",
            lines=unique(
                [*odd, *state, *(e.line for e in traffic[-2:]), *(e.line for e in scene.events("ready")[-1:])]
            ),
            phase=Phase.SERVING,
            died=False,
        )


def _blind(scene: Scene) -> bool:
    """Whether what would show an earlier death could not be read."""
    return any(
        unread.source in ("unit journal", "kernel log", "container log", "pod log") for unread in scene.unread
    )


def _cleaned_up(scene: Scene) -> list[Line]:
    """Python's resource tracker outlives the main process: its words at the end say that the process is gone."""
    return [s.events[-1].line for s in scene.servers if s.events and s.events[-1].role == "cleaned-up"]


def _just_stops(scene: Scene) -> str:
    """The sentence for a log that says nothing about an end."""
    if _cleaned_up(scene):
        return (
            "The main process ended without a word, as it does at SIGKILL: Python's resource tracker cleaned up "
            "after it. By whom or why is in no line that was read."
        )
    if any(event.role == "traffic" for stream in scene.servers for event in stream.events[-3:]):
        return (
            "The log ends in ordinary service. If the server is gone, it was killed from outside or the host went "
            "down: the kernel log and the supervisor's record tell."
        )
    return "Nothing that was read shows a death or says why there should have been one."


def _stopped_log(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """The log simply ends."""
    remaining = _remaining(scene)
    last = _last_log_lines(scene)
    if remaining:
        summary = (
            f"The log ends while {remaining} requests are being drained. What ended the server is not in it: a "
            f"supervisor "
            "that lost patience with the stop would be, in the journal."
        )
        yield Claim(
            cause="unsettled",
            confidence=Confidence.UNSETTLED,
            summary=summary,
            lines=unique([*(d.line for d in _drains(scene)[-1:]), *(a.line for a in ending.asked[:1]), *last]),
            phase=Phase.SHUTDOWN,
            died=None,
        )
        return
    yield Claim(
        cause="unsettled",
        confidence=Confidence.UNSETTLED,
        summary=_just_stops(scene),
        lines=unique([*_cleaned_up(scene), *last]),
        phase=last_phase(scene),
        died=None,
    )
