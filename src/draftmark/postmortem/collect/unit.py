"""A systemd unit: its properties, journal, log files, control group, core dump, and who else was at work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from draftmark.ports import Completed, Host
from draftmark.postmortem.collect.cgroups import collect_cgroups
from draftmark.postmortem.collect.containers import collect_container_of_unit
from draftmark.postmortem.collect.devices import collect_devices
from draftmark.postmortem.collect.files import read_file
from draftmark.postmortem.collect.gathering import (
    Collected,
    Gathering,
    Reader,
    reason,
)
from draftmark.postmortem.collect.journal import (
    History,
    Sight,
    entries,
    for_people,
    history,
    sight,
    window,
)
from draftmark.postmortem.collect.kernel import Span, collect_kernel
from draftmark.postmortem.collect.streams import Counted, Output, peeked
from draftmark.postmortem.collect.units import Unit, find_unit, no_such_unit
from draftmark.postmortem.collect.windows import unit_lines

_DROPPED = b"a596d6fe7bfa4994828e72309e95d61e"  # journald: Suppressed N messages
_BYSTANDERS = ("systemd-oomd", "earlyoom", "nohang", "systemd-logind", "sudo", "polkitd", "audit")
_AFTERMATH_S = 600.0  # the killer's own lines, a driver's complaints
_TARGETS = ("shutdown.target", "reboot.target", "poweroff.target", "halt.target", "kexec.target")
_KILLERS = re.compile(rb'"SYSLOG_IDENTIFIER"\s*:\s*"(?:systemd|systemd-oomd|earlyoom|nohang)"')
_INTERFERENCE = re.compile(rb"kill|systemctl|reboot|shutdown|poweroff|power off|ANOM_ABEND|sig=\d", re.IGNORECASE)
_CONTAINER = re.compile(r"argv\[\]=(?:\S*/)?(docker|podman) (?:\S+ )*?run (?:.*? )?--name[= ]([\w.-]+)")
_OUTPUT = re.compile(r"^\s*Standard(?:Output|Error)\s*=\s*(?:file|append|truncate):(\S.*?)\s*$", re.MULTILINE)


def collect_unit(host: Host, name: str, *, read: Reader, runs: int = 3, since: str | None = None) -> Collected:
    """Read all that this user may read of a unit.

    Args:
        host: Where it runs.
        name: Unit, alias or instance; `.service` may be left out.
        read: Makes a source of a name and of bytes.
        runs: How many of its last runs to look at.
        since: Beginning of the window instead, as journalctl takes it; clock times are in UTC.

    Raises:
        BadInputError: Neither systemd nor the journal knows the unit.
    """
    gathering = Gathering(host, read)
    unit = find_unit(host, name)
    seen, asked = sight(host)
    past = history(host, unit, runs, since)
    start = since or window(past)
    known = unit.loaded or bool(past.runs)
    if known:
        _properties(gathering, unit)
    found = _journal(gathering, unit, past, start)
    if not (known or found):
        raise no_such_unit(host, unit, because=_blindness(seen, asked))
    _gaps(gathering, unit, past, seen, found=found, asked=asked, start=start, runs=runs)
    _log_files(gathering, unit)
    if match := _CONTAINER.search(unit.properties.get("ExecStart", "")):
        collect_container_of_unit(gathering, match[1], match[2])
    span = _span(unit, past, start)
    if seen in (Sight.ALL, Sight.OWN):
        _bystanders(gathering, unit, span)
    collect_kernel(gathering, seen, span)
    collect_cgroups(gathering, unit)
    _core_dump(gathering, unit)
    collect_devices(gathering)
    return gathering.done(unit.name)


def _properties(gathering: Gathering, unit: Unit) -> None:
    if unit.asked.ok and unit.properties and unit.loaded:
        gathering.add(f"systemctl show {unit.name}", unit.shown)
    elif not unit.asked.ok:
        gathering.miss("unit properties", reason(unit.asked, unit.argv), f"systemctl show {unit.name}")
    else:
        because = "systemd does not know the unit any more: only its journal is left"
        gathering.miss("unit properties", because, f"systemctl cat {unit.name}")


def _journal(gathering: Gathering, unit: Unit, past: History, start: str | None) -> bool:
    """Keep the unit's lines; whether there were any."""
    lines, notes = unit_lines(gathering.host, unit, past, start)
    counted = Counted(lines, (_DROPPED,))
    chunks = peeked(counted)
    if chunks is None:
        return False
    shown = for_people(*unit.journal(), since=start)
    gathering.add(f"journal of {unit.name}", chunks, argv=shown, as_root=not unit.user)
    if counted.found.get(_DROPPED):
        notes.append("journald dropped messages of it (rate limit): not every line is there")
    gathering.annotate(notes)
    return True


def _blindness(seen: Sight, asked: Completed) -> str:
    """Why the journal does not know the unit, for the error."""
    return {
        Sight.ALL: "systemd does not know it, and the journal holds no line of it",
        Sight.OWN: "systemd does not know it; of the journal this user sees only his own messages",
        Sight.NOTHING: "systemd does not know it; this user may not read the journal",
        Sight.NO_JOURNAL: f"systemd does not know it, and there is no journal ({reason(asked, ('journalctl',))})",
    }[seen]


def _gaps(
    gathering: Gathering,
    unit: Unit,
    past: History,
    seen: Sight,
    *,
    found: bool,
    asked: Completed,
    start: str | None,
    runs: int,
) -> None:
    """Say what of the journal is not seen, or no longer there."""
    command = for_people(*unit.journal(), since=start)
    groups = "; members of the group systemd-journal may"
    if seen is Sight.NOTHING:
        gathering.miss("unit journal", f"this user may not read the journal{groups}", command, as_root=True)
    elif seen is Sight.NO_JOURNAL:
        gathering.miss("unit journal", f"no journal: {reason(asked, ('journalctl',))}", command, as_root=True)
    elif seen is Sight.OWN and not (found and unit.user):
        because = "this user sees only his own messages: what systemd says of the unit is not among them"
        gathering.miss("unit journal", because + groups, command, as_root=True)
    elif not found:
        because = "the journal holds no line of it: never started, gone with rotation, or written elsewhere"
        gathering.miss("unit journal", because, f"systemctl cat {unit.name}; journalctl --list-boots")
    elif past.runs and len(past.runs) < runs and not past.runs[-1].started:
        when = datetime.fromtimestamp(past.runs[-1].first_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        because = "older lines are gone: rotated away, or kept in memory until a reboot"
        gathering.miss(f"unit journal before {when} UTC", because, "journalctl --list-boots")
    elif not past.exits and len(past.runs) < runs and _one_boot(gathering.host):
        because = "the journal holds this boot only, in which it was not seen to die"
        gathering.miss("journal of earlier boots", because, "ls /var/log/journal; last -x reboot shutdown")


def _one_boot(host: Host) -> bool:
    boots = host.run(("journalctl", "--list-boots", "--quiet", "--no-pager"))
    return boots.ok and len(re.findall(rb"^\s*-?\d+ [0-9a-f]{32} ", boots.stdout, re.MULTILINE)) == 1


def _span(unit: Unit, past: History, start: str | None) -> Span:
    """The time in which the kernel may have had a hand in it."""
    began = unit.properties.get("ExecMainStartTimestamp", "")
    # By systemd alone: of a unit that was started again, only the run after the death is known.
    once = unit.properties.get("NRestarts") == "0" and unit.properties.get("ActiveState") in ("failed", "inactive")
    return Span(
        since=start or began or None,  # journalctl understands the stamp as systemd prints it
        begun_s=min((run.first_s for run in past.runs), default=_seconds(began) if once else None),
        death_s=past.exits[0] if past.exits else _seconds(unit.properties.get("ExecMainExitTimestamp", "")),
        boot=past.runs[0].boot if past.runs else "",
        until_s=_end(unit, past),
    )


def _end(unit: Unit, past: History) -> float | None:
    """When there was nothing left to happen to it, seconds since the epoch; None while it runs or when unknown."""
    if unit.properties.get("ActiveState") not in ("failed", "inactive"):
        return None
    stamps = [_seconds(unit.properties.get(f"{key}Timestamp", "")) for key in ("StateChange", "ExecMainExit")]
    known = [when for when in (*stamps, *(run.last_s for run in past.runs[:1])) if when is not None]
    return max(known) + _AFTERMATH_S if known else None


def _seconds(stamp: str) -> float | None:
    """A time of `systemctl show`, seconds since the epoch; None when it is not in UTC, or none."""
    try:
        return datetime.strptime(stamp, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _log_files(gathering: Gathering, unit: Unit) -> None:
    """Files that its output goes to instead of the journal. No property tells their names, only the unit file."""
    if not {"file", "append", "truncate"} & {
        unit.properties.get(key) for key in ("StandardOutput", "StandardError")
    }:
        return
    argv = unit.systemctl("cat", "--no-pager", "--", unit.name)
    ended = gathering.host.run(argv)
    if not ended.ok:
        gathering.failed("log file of the unit", ended, argv)
    for path in dict.fromkeys(_OUTPUT.findall(ended.stdout.decode("utf-8", "replace"))):
        read_file(gathering, _expanded(path, unit.name))


def _expanded(path: str, name: str) -> str:
    """A path with the specifiers of a unit's own name put in."""
    prefix, _, instance = name.rpartition(".")[0].partition("@")
    values = {"n": name, "N": name.rpartition(".")[0], "p": prefix, "i": instance, "I": instance, "%": "%"}
    return re.sub(r"%([nNpiI%])", lambda match: values[match[1]], path)


def _bystanders(gathering: Gathering, unit: Unit, span: Span) -> None:
    """Who else may have ended it: userspace killers, an operator, a shutdown, its slice's limit."""
    matches: list[str] = []
    for ident in _BYSTANDERS:
        matches += ["+", f"SYSLOG_IDENTIFIER={ident}"]
    for other in (*_TARGETS, *filter(None, [unit.properties.get("Slice")])):
        matches += ["+", "_PID=1", f"UNIT={other}"]
    chunks = peeked(_interfering(Output(gathering.host, entries(*matches[1:], since=span.since, until=span.until))))
    if chunks is not None:
        gathering.add("journal of other programs", chunks)


def _interfering(output: Output) -> Iterator[bytes]:
    """Lines of those that end services; of those who also do other things, the lines about ending something."""
    for line in output.lines():
        if _KILLERS.search(line) or _INTERFERENCE.search(line):
            yield line + b"\n"


def _core_dump(gathering: Gathering, unit: Unit) -> None:
    """The last core dump, with its stacks; that there is none is no gap."""
    match = f"COREDUMP_USER_UNIT={unit.name}" if unit.user else f"COREDUMP_UNIT={unit.name}"
    gathering.command(f"coredumpctl of {unit.name}", ("coredumpctl", "info", "--no-pager", "-1", match))
