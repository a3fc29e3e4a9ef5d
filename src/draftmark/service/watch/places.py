"""Where things of a watch are, on the unit's host: of the system's manager, or of a user's own."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from draftmark.errors import BadInputError, FailedError, UsageError
from draftmark.ports import Completed, Host
from draftmark.service.watch.units import DROP_IN, SPOOL, STARTED, TEMPLATE, fits

KEEP = 20
SETTINGS = "settings.json"
SEEN = "seen"
_SERVICE = ".service"
_PROPERTIES = "Id,LoadState,LoadError,ActiveState,SubState,InvocationID,OnFailure,ExecStopPost"
_HOMES = 'printf "%s\\n" "${XDG_CONFIG_HOME:-$HOME/.config}" "${XDG_STATE_HOME:-$HOME/.local/state}"'
_RUNTIME = 'printf "%s\\n" "${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"'


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of one manager, on the unit's host.

    Attributes:
        user: A user's own manager.
        units: Where unit files and drop-ins are put.
        state: Of all watches: settings, and the reports unless they were wanted elsewhere.
        runtime: Of the manager: gone with a reboot.
    """

    user: bool
    units: str
    state: str
    runtime: str

    def drop_in_folder(self, unit: str) -> str:
        """Of the unit's drop-ins."""
        return f"{self.units}/{unit}.d"

    def drop_in(self, unit: str) -> str:
        """The one that a watch adds."""
        return f"{self.drop_in_folder(unit)}/{DROP_IN}"

    @property
    def templates(self) -> tuple[str, ...]:
        """The watcher's unit files."""
        return f"{self.units}/{TEMPLATE}", f"{self.units}/{STARTED}"

    def folder(self, unit: str) -> str:
        """Of the watch of one unit."""
        return f"{self.state}/{unit}"

    def settings(self, unit: str) -> str:
        """What was asked for at `install`."""
        return f"{self.folder(unit)}/{SETTINGS}"

    def spool(self, unit: str) -> str:
        """Deaths that wait for their report."""
        return f"{self.runtime}/{SPOOL}/{unit}"

    def pace(self, unit: str) -> str:
        """When the last reports were written: beside the spool, for a full disk must not make it forget."""
        return f"{self.spool(unit)}.pace"

    def tuning(self, unit: str) -> str:
        """What is there while Draftmark tunes the unit."""
        return f"{self.runtime}/draftmark/{unit}"

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """A command to this manager."""
        return ("systemctl", *(("--user",) if self.user else ()), *words)


SYSTEM = Places(user=False, units="/etc/systemd/system", state="/var/lib/draftmark/watch", runtime="/run")


def of_user(host: Host) -> Places:
    """A user's own places, by his environment on that host.

    Raises:
        FailedError: There is no shell that tells.
    """
    asked = host.run(("sh", "-c", f"{_HOMES}; {_RUNTIME}"))
    found = asked.stdout.decode("utf-8", "surrogateescape").splitlines()
    if not asked.ok or len(found) != 3 or not all(path.startswith("/") for path in found):
        raise FailedError(
            "the user's folders could not be found", evidence=(asked.stderr.strip()[:200],), next_step="set HOME"
        )
    config, state, runtime = found
    return Places(user=True, units=f"{config}/systemd/user", state=f"{state}/draftmark/watch", runtime=runtime)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a watch was asked for.

    Attributes:
        unit: Canonical name.
        reports: Folder of the unit's reports.
        keep: How many reports.
        form: Of the webhook: `json`, `slack` or `alertmanager`.
        webhook: URL; a secret.
        python: The interpreter that writes the reports.
        since_s: When the watch began, seconds since the epoch: earlier deaths are not its business.
        made: Folders that were made for it, the outermost first.
    """

    unit: str
    reports: str
    keep: int = KEEP
    form: str = "json"
    webhook: str | None = None
    python: str = ""
    since_s: float = 0.0
    made: list[str] = field(default_factory=list)

    def dump(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"


def read_settings(host: Host, places: Places, unit: str) -> Settings | None:
    """What was asked for; None when the unit is not watched, or nothing usable is left of it."""
    try:
        found: Any = json.loads(host.read(places.settings(unit)))
        known = {each.name for each in fields(Settings)}
        return Settings(**{key: value for key, value in found.items() if key in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Watched:
    """A unit that a watch is about.

    Attributes:
        unit: Canonical name.
        places: Of its manager.
        properties: What its manager says of it; empty when it does not know the unit.
    """

    unit: str
    places: Places
    properties: dict[str, str]

    @property
    def loaded(self) -> bool:
        """Its manager has a unit file of it."""
        return self.properties.get("LoadState", "not-found") != "not-found"


def find(host: Host, name: str) -> Watched:
    """The service of that name: the system's, or else the user's own.

    Raises:
        UsageError: It cannot be the name of one service.
        BadInputError: There is no systemd.
    """
    wanted = canonical(name)
    system = show(host, SYSTEM, wanted)
    if system.loaded:
        return system
    own = show(host, of_user(host), wanted)
    return own if own.loaded or read_settings(host, own.places, wanted) else system


def canonical(name: str) -> str:
    """The name with its type.

    Raises:
        UsageError: It cannot be the name of one service.
    """
    unit = name if name.endswith(_SERVICE) else name + _SERVICE
    usable = re.fullmatch(r"[A-Za-z0-9:_.\\@-]{1,255}", unit) and not unit.startswith((".", "-", "@"))
    if not usable or re.search(r"\.(?:socket|timer|target|scope|slice|mount|path|swap|device)\.service$", unit):
        raise UsageError(
            f'"{name[:80]}" cannot be the name of a service',
            evidence=("watch is for units whose names end with .service",),
            next_step="systemctl list-units --all --type=service",
        )
    if unit.endswith(f"@{_SERVICE}"):
        raise UsageError(
            f"{unit} is a template, of which nothing runs",
            next_step=f"name an instance, such as {unit.removesuffix(_SERVICE)}0{_SERVICE}",
        )
    if unit.startswith("draftmark-"):
        raise UsageError(f"{unit} is one of Draftmark's own units", next_step="watch the unit of the server")
    if not fits(unit):
        raise UsageError(
            f"{unit} is too long a name to be watched", evidence=("a unit's name has at most 255 characters",)
        )
    return unit


def show(host: Host, places: Places, unit: str) -> Watched:
    """What a manager says of a unit.

    Raises:
        BadInputError: There is no systemd on that host.
    """
    asked = host.run(places.systemctl("show", "--no-pager", "-p", _PROPERTIES, "--", unit))
    if asked.missing or (not asked.ok and not places.user):
        raise BadInputError(
            f"{host.name} has no systemd that answers",
            evidence=(reason(asked),),
            next_step="watch works on hosts with systemd",
        )
    found: dict[str, str] = {}
    for line in asked.stdout.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals:  # ExecStopPost has a line for each command
            found[key] = f"{found[key]}\n{value}" if key in found else value
    return Watched(found.get("Id") or unit, places, found)


def reason(ended: Completed) -> str:
    """Why a command did not do what it should, in a line."""
    if ended.timed_out:
        return "no answer in time"
    said = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return said[-1][:300] if said else f"exit status {ended.status}"
