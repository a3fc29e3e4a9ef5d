"""Which unit is meant, whose manager knows it, and what that says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from draftmark.errors import BadInputError
from draftmark.ports import Completed, Host
from draftmark.postmortem.collect.gathering import close_names, reason

_SUFFIXES = (
    "service",
    "scope",
    "slice",
    "socket",
    "target",
    "timer",
    "mount",
    "path",
    "device",
    "swap",
    "automount",
)
_PROPERTIES = (
    "Id,Names,Description,LoadState,LoadError,ActiveState,SubState,UnitFileState,Result,Type,User,"
    "ExecMainCode,ExecMainStatus,ExecMainPID,ExecMainStartTimestamp,ExecMainExitTimestamp,StatusErrno,StatusText,"
    "NRestarts,InvocationID,ActiveEnterTimestamp,ActiveExitTimestamp,InactiveEnterTimestamp,StateChangeTimestamp,"
    "OOMPolicy,OOMKills,ManagedOOMKills,ManagedOOMMemoryPressure,ManagedOOMSwap,KillMode,KillSignal,SendSIGKILL,"
    "TimeoutStartUSec,TimeoutStopUSec,TimeoutStopFailureMode,RuntimeMaxUSec,WatchdogUSec,Restart,RestartUSec,"
    "SuccessExitStatus,StartLimitBurst,StartLimitIntervalUSec,MemoryMax,MemoryHigh,MemorySwapMax,MemoryCurrent,"
    "MemoryPeak,MemorySwapPeak,TasksMax,LimitMEMLOCK,LimitCORE,Slice,ControlGroup,StandardOutput,StandardError,"
    "FragmentPath,DropInPaths,NeedDaemonReload,ExecStart,ExecStop,ExecStartPre"
)

_LISTING_S = 5.0  # a hint at a name is not worth more


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as its manager names it.

    Attributes:
        name: Canonical (`Id`).
        user: A user's manager runs it, not the system's.
        properties: First value of each property; empty where no manager answered.
        shown: The output of `systemctl show`, to be kept as it is.
        asked: How the manager answered, for the reason when it did not.
        argv: The command that asked.
    """

    name: str
    user: bool
    properties: dict[str, str]
    shown: bytes
    asked: Completed
    argv: tuple[str, ...]

    @property
    def loaded(self) -> bool:
        """There is a unit file, be it masked or broken."""
        return self.properties.get("LoadState", "not-found") != "not-found"

    def journal(self) -> tuple[str, ...]:
        """What makes journalctl show its lines, those about it, and its core dumps."""
        return (f"--user-unit={self.name}",) if self.user else (f"--unit={self.name}",)

    def manager_lines(self) -> tuple[str, ...]:
        """What matches only what its manager says of it. A user's manager is no fixed process."""
        return (f"USER_UNIT={self.name}",) if self.user else ("_PID=1", f"UNIT={self.name}")

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """A systemctl command to its manager."""
        return ("systemctl", *(("--user",) if self.user else ()), *words)


def canonical(name: str) -> str:
    """The name with a type: `.service` where none is written.

    Raises:
        BadInputError: It cannot be the name of one unit.
    """
    if not re.fullmatch(r"[A-Za-z0-9:_.\\@-]{1,255}", name) or name.startswith((".", "-")):
        raise BadInputError(
            f'"{name[:80]}" cannot be the name of a unit',
            evidence=("a unit's name has letters, digits and :-_.\\@ only, and no pattern",),
            next_step="systemctl list-units --all --type=service",
        )
    return name if name.rpartition(".")[2] in _SUFFIXES and "." in name else f"{name}.service"


def find_unit(host: Host, name: str) -> Unit:
    """Ask the system's manager, then the user's own.

    Raises:
        BadInputError: The name cannot be a unit's.
    """
    wanted = canonical(name)
    system = _show(host, wanted, user=False)
    if system.loaded:
        return system
    own = _show(host, wanted, user=True)
    return own if own.loaded else system


def _show(host: Host, name: str, *, user: bool) -> Unit:
    scope = ("--user",) if user else ()
    argv = ("systemctl", *scope, "show", "--no-pager", "-p", _PROPERTIES, "--", name)
    ended = host.run(argv)
    properties: dict[str, str] = {}
    for line in ended.stdout.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            properties.setdefault(key, value)
    return Unit(properties.get("Id") or name, user, properties, ended.stdout, ended, argv)


def no_such_unit(host: Host, unit: Unit, *, because: str) -> BadInputError:
    """The error for a unit that nothing knows, with names that may have been meant."""
    names: list[str] = []
    for words in (("list-units", "--all"), ("list-unit-files",), ("--user", "list-units", "--all")):
        argv = ("systemctl", *words, "--type=service", "--plain", "--no-legend", "--no-pager")
        listed = host.run(argv, timeout_s=_LISTING_S)
        names += [line.split()[0] for line in listed.stdout.decode("utf-8", "replace").splitlines() if line.split()]
    close = [each for each in close_names(unit.name, names) if not each.endswith("@.service")]
    evidence = [because]
    if not unit.asked.ok:
        evidence.insert(0, reason(unit.asked, unit.argv))
    if close:
        evidence.append("names like it: " + ", ".join(close))
    if unit.asked.missing:
        step = "hand over what was saved instead: draftmark why LOG… (its log, journal and kernel log as files)"
    elif close:
        step = f"draftmark why unit:{close[0]}"
    else:
        step = "systemctl list-units --all --type=service"
    return BadInputError(f"there is no unit {unit.name} here", evidence=tuple(evidence), next_step=step)
