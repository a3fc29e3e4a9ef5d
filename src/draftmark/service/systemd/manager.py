"""What systemd says of one unit, and which manager it belongs to."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from draftmark.errors import BadInputError, HostError, RefusedError
from draftmark.ports import Completed, Host

_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_LISTING_S = 5.0
_WITHOUT_SYSTEMD = (
    'run it where the unit is, or name that host with --host; a server without a unit is cmd:"…", and for fit a '
    "model's folder, with --log of a start, is enough"
)
_MOST = 3
_ALIKE = 0.65
"""Of difflib: `lm` and `llm` are above it, `nope` and `kmod` below."""


@dataclass(frozen=True, slots=True)
class Manager:
    """The manager of one unit, on one host.

    Attributes:
        unit: Its canonical name (`Id`).
        user: A user's own manager runs it, not the system's.
    """

    host: Host
    unit: str
    user: bool = False

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """A command to it."""
        return ("systemctl", *(("--user",) if self.user else ()), "--no-pager", "--no-ask-password", *words)

    def for_people(self, verb: str) -> str:
        """A command for people to type."""
        return " ".join(("systemctl", *(("--user",) if self.user else ()), verb, self.unit))

    @property
    def journal_for_people(self) -> str:
        """The command that shows its journal."""
        return f"journalctl {'--user-unit' if self.user else '-u'} {self.unit} -n 100"

    def show_of(self, units: Iterable[str], *names: str) -> list[Properties]:
        """Some properties of other units of this manager, each in a block of its own.

        Raises:
            HostError: systemd does not answer.
        """
        wanted = tuple(units)
        if not wanted:
            return []
        ended = self.host.run(self.systemctl("show", "-p", ",".join(names), "--", *wanted))
        if not ended.ok:
            raise unanswered(ended)
        return [Properties.parse(block) for block in ended.stdout.split(b"\n\n") if block.strip()]

    def show(self, *names: str) -> Properties:
        """Properties, all or those named.

        Raises:
            HostError: systemd does not answer.
        """
        wanted = ("-p", ",".join(names)) if names else ()
        ended = self.host.run(self.systemctl("show", *wanted, "--", self.unit))
        if not ended.ok:
            raise unanswered(ended)
        return Properties.parse(ended.stdout)


@dataclass(frozen=True, slots=True)
class Properties(Mapping[str, str]):
    """Properties of a unit as `systemctl show` prints them; of those that come several times, the first.

    Attributes:
        known: Name to value.
        lines: As printed, in order.
    """

    known: Mapping[str, str]
    lines: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, output: bytes) -> Properties:
        """From the output of `systemctl show`."""
        values: dict[str, str] = {}
        lines = tuple(output.decode("utf-8", "surrogateescape").splitlines())
        for line in lines:
            name, equals, value = line.partition("=")
            if equals:
                values.setdefault(name, value)
        return cls(values, lines)

    def __getitem__(self, name: str) -> str:
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def number(self, name: str) -> int | None:
        """A property as a number; None where it has none."""
        text = self.known.get(name, "")
        return int(text) if text.isdecimal() else None

    def words(self, name: str) -> tuple[str, ...]:
        """A property that is a list of paths or names."""
        return listed(self.known.get(name, ""))


def listed(value: str) -> tuple[str, ...]:
    """A property that is a list. systemctl quotes words with a blank or a backslash, which it doubles."""
    found = _WORD.findall(value)
    return tuple(re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in found)


def find(host: Host, name: str) -> tuple[Manager, Properties]:
    """Ask the system's manager for a unit, then the user's own.

    Raises:
        BadInputError: There is no such unit, or it is a template, or there cannot be one of that name.
        RefusedError: There is, and it is masked or broken.
        HostError: There is no systemd, or it does not answer.
    """
    full = name if name.endswith(".service") else f"{name}.service"
    if not _NAME.fullmatch(full) or full.startswith((".", "-")):
        raise BadInputError(
            f'"{name[:80]}" cannot be the name of a service unit',
            evidence=("a unit's name has letters, digits and :-_.\\@ only",),
            next_step="systemctl list-units --all --type=service",
        )
    if full.endswith("@.service"):
        raise _template(host, full)
    system = Manager(host, full)
    found = system.show()
    manager = system
    if found.get("LoadState", "not-found") == "not-found":
        own = Manager(host, full, user=True)
        ended = host.run(own.systemctl("show", "--", full))
        properties = Properties.parse(ended.stdout) if ended.ok else None
        if properties is None or properties.get("LoadState", "not-found") == "not-found":
            raise _no_such(host, full)
        manager, found = own, properties
    manager = Manager(host, found.get("Id", full), user=manager.user)
    _usable(manager, found)
    return manager, found


def _usable(manager: Manager, found: Properties) -> None:
    state = found.get("LoadState", "")
    if state == "masked":
        raise RefusedError(
            f"{manager.unit} is masked: it cannot be started",
            evidence=(f"LoadState={state}", f"FragmentPath={found.get('FragmentPath', '')}"),
            next_step=manager.for_people("unmask"),
        )
    if state != "loaded":
        raise RefusedError(
            f"systemd cannot load {manager.unit}",
            evidence=(f"LoadState={state}", f"LoadError={found.get('LoadError', '')}"),
            next_step=f"systemd-analyze verify {manager.unit}",
        )
    if "/transient/" in found.get("FragmentPath", ""):
        raise RefusedError(
            f"{manager.unit} is transient: a stop makes it vanish, and nothing could start it again",
            evidence=(f"FragmentPath={found.get('FragmentPath', '')}",),
            next_step="write a unit file for it, in /etc/systemd/system",
        )


def _template(host: Host, name: str) -> BadInputError:
    """A template is no service; what is made of it is."""
    stem = name.removesuffix(".service")
    known = sorted(each for each in _known(host) if each.startswith(stem) and each != name)
    return BadInputError(
        f"{name} is a template, and nothing runs by that name: name an instance of it",
        evidence=(f"instances that {host.name} knows: {', '.join(known)}",)
        if known
        else (f"{host.name} knows no instance of it",),
        next_step=f"unit:{known[0]}" if known else f"unit:{stem}INSTANCE.service",
    )


def _known(host: Host) -> set[str]:
    """Services of either manager, loaded or installed."""
    known: set[str] = set()
    for scope in ((), ("--user",)):
        for verb in (("list-units", "--all"), ("list-unit-files",)):
            argv = ("systemctl", *scope, *verb, "--type=service", "--plain", "--no-legend", "--no-pager")
            lines = host.run(argv, timeout_s=_LISTING_S).stdout.decode("utf-8", "replace").splitlines()
            known |= {line.split()[0] for line in lines if line.split()}
    return known


def _no_such(host: Host, name: str) -> BadInputError:
    close = close_names(name, _known(host))
    return BadInputError(
        f"there is no unit {name} on {host.name}",
        evidence=(f"names like it: {', '.join(close)}",) if close else (),
        next_step=f"unit:{close[0]}" if close else "systemctl list-units --all --type=service",
    )


def close_names(name: str, listed: Iterable[str]) -> list[str]:
    """Services that may have been meant, the likeliest first: spelt alike but for the suffix, or one in another."""
    wanted = name.removesuffix(".service").lower()
    stems = {each: each.removesuffix(".service").lower() for each in sorted(set(listed))}
    stems = {each: stem for each, stem in stems.items() if not stem.endswith("@")}  # of a template nothing runs
    alike = difflib.get_close_matches(wanted, stems.values(), n=_MOST, cutoff=_ALIKE)
    pairs = {stem: sorted((stem, wanted), key=len) for stem in stems.values()}
    holding = [stem for stem, (short, long) in pairs.items() if len(short) > 2 and short in long]
    found = [each for stem in (*alike, *holding) for each in stems if stems[each] == stem]
    return list(dict.fromkeys(found))[:_MOST]


def unanswered(ended: Completed) -> HostError:
    """Systemd is not there, or not to be reached."""
    said = " ".join(ended.stderr.split())[:300]
    if ended.missing:
        what, step = "this host has no systemd: there is no systemctl", _WITHOUT_SYSTEMD
    elif "not been booted with systemd" in said or "Failed to connect to bus" in said:
        what, step = "systemd does not run on this host", _WITHOUT_SYSTEMD
    elif ended.timed_out:
        what, step = "systemd does not answer", "see whether it is stuck: systemctl is-system-running"
    else:
        what, step = "systemctl failed", "try it by hand: systemctl show UNIT"
    return HostError(what, evidence=(said,) if said else (), next_step=step)
