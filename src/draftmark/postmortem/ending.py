"""How it ended, as far as records and last lines tell: an exit status, a signal, a stop. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftmark.postmortem.events import Event
from draftmark.postmortem.model import Line
from draftmark.postmortem.scene import Scene

_BY_NAME = {"KILL": 9, "TERM": 15, "ABRT": 6, "SEGV": 11, "ILL": 4, "BUS": 7, "INT": 2, "QUIT": 3}
_CLD_KILLED, _CLD_DUMPED = "2", "3"  # siginfo's codes, as systemd's ExecMainCode gives them


@dataclass(slots=True)
class Ending:
    """The end of the main process, or of a child.

    Attributes:
        signal: That ended the main process; None when it exited by itself or nothing tells.
        status: Exit status; None when a signal ended it or nothing tells.
        child_signal: That ended a child.
        lines: That tell it.
        child_lines: That tell of the child.
        stops: Requests to stop, by systemd, a container engine or the kubelet.
        running: The service is up now, by a record; None when no record tells.
        restarted: How often a supervisor has started it again, as far as a record tells.
    """

    signal: int | None = None
    status: int | None = None
    child_signal: int | None = None
    child_status: int | None = None
    lines: list[Line] = field(default_factory=list)
    child_lines: list[Line] = field(default_factory=list)
    stops: list[Event] = field(default_factory=list)
    asked: list[Event] = field(default_factory=list)
    running: bool | None = None
    result: str = ""
    restarted: int = 0

    @property
    def known(self) -> bool:
        """Whether anything tells that the server, or a part of it, is gone."""
        return any(v is not None for v in (self.signal, self.status, self.child_signal, self.child_status))


def read_ending(scene: Scene) -> Ending:
    """Put together what tells of the end."""
    ending = Ending()
    for event in scene.signs("systemd.main-exited"):
        _systemd(ending, event)
    _unit_record(ending, scene)
    _containers(ending, scene)
    for event in scene.events("child-exit"):
        _child(ending, event)
    for event in scene.events("exit-code"):
        _shell(ending, int(event.values.get("code") or event.values["code2"]), event.line)
    for event in scene.events("killed"):
        if ending.child_signal is None and ending.signal is None:
            ending.child_signal = 9
        ending.child_lines.append(event.line)
    for event in scene.signs("systemd.result"):
        ending.result = event.values["result"]
        ending.lines.append(event.line)
    ending.stops = [e for e in scene.events("stop") if e.sign.voice != "app" and e.sign.id != "systemd.killing"]
    ending.asked = [e for e in scene.events("stop", "drain") if e.sign.voice == "app"]
    return ending


def _systemd(ending: Ending, event: Event) -> None:
    code, status = event.values["code"], int(event.values["status"])
    ending.signal, ending.status = (None, status) if code == "exited" else (status, None)
    ending.lines.append(event.line)


def _shell(ending: Ending, code: int, line: Line) -> None:
    """An exit status as a shell or compose tells it: 128 + signal for a death by signal."""
    if ending.signal is None and ending.status is None:
        ending.signal, ending.status = (code - 128, None) if _SIGNALLED < code < _SIGNALLED + 65 else (None, code)
    ending.lines.append(line)


_SIGNALLED = 128


def _unit_record(ending: Ending, scene: Scene) -> None:
    unit = scene.records.unit
    if unit is None:
        return
    restarts = unit.get("NRestarts")
    ending.restarted = max(ending.restarted, int(restarts) if restarts.isdigit() else 0)
    active = unit.get("ActiveState")
    if active:
        ending.running = active in ("active", "reloading")
    ending.result = unit.get("Result")
    if ending.known or ending.running:
        return
    code, status = unit.get("ExecMainCode"), unit.get("ExecMainStatus")
    if not status.isdigit() or code in ("", "0"):
        return
    ending.signal, ending.status = (
        (int(status), None) if code in (_CLD_KILLED, _CLD_DUMPED) else (None, int(status))
    )
    ending.lines += [unit.lines[name] for name in ("ExecMainStatus", "Result") if name in unit.lines]


def _containers(ending: Ending, scene: Scene) -> None:
    for container in scene.records.containers:
        if container.running is not None:
            ending.running = bool(ending.running) or container.running
        ending.restarted = max(ending.restarted, container.restarts or 0)
        code = container.exit_code
        if code is None or (container.running and not container.restarts and not container.reason):
            continue
        if ending.signal is None and ending.status is None:
            ending.signal, ending.status = (code - 128, None) if code > 128 else (None, code)
        ending.lines += [
            container.lines[key] for key in ("exit_code", "oom_killed", "reason") if key in container.lines
        ]


def _child(ending: Ending, event: Event) -> None:
    values = event.values
    text = values.get("code") or values.get("code2")
    ending.child_lines.append(event.line)
    if "signal" in values and values["signal"].isdigit():
        ending.child_signal = ending.child_signal or int(values["signal"])
    elif text is not None:
        code = int(text)
        if code < 0 and ending.child_signal is None:
            ending.child_signal = -code
        elif code >= 0 and ending.child_status is None:
            ending.child_status = code
    elif ending.child_status is None and ending.child_signal is None:
        ending.child_status = 1  # gone, and nothing says how


def signal_name(number: int | None) -> str:
    """`SIGKILL` for 9."""
    names = {value: "SIG" + name for name, value in _BY_NAME.items()}
    return names.get(number or 0, f"signal {number}")
