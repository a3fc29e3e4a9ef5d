"""Everything that is known of a unit before anything is touched: its files, its command line, its environment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from draftmark.errors import RefusedError
from draftmark.ports import Host
from draftmark.service.systemd.commandline import UnitCommand
from draftmark.service.systemd.environment import ServiceEnvironment, printed, service_environment, wanted_files
from draftmark.service.systemd.manager import Manager, Properties, find
from draftmark.service.systemd.specifiers import HostFacts, specifier_values
from draftmark.service.systemd.triggers import Trigger, triggers
from draftmark.service.systemd.unitfile import Unit, UnitFile

_LIMIT = 1 << 20
_SCRIPT_LIMIT = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundUnit:
    """A unit that could be tuned.

    Attributes:
        files: Its fragment, then its drop-ins in systemd's order.
        command: The server's command line in it.
        environment: As its processes see it.
        environment_files: Those that were read.
        decisive: Further files by which it is what it is: those of its environment, also where there is none yet,
            and scripts that start the server.
        triggers: What starts it besides.
        output_files: Where its output goes instead of the journal; whether systemd empties it at a start.
    """

    manager: Manager
    properties: Properties
    files: tuple[UnitFile, ...]
    unit: Unit
    command: UnitCommand
    environment: ServiceEnvironment
    environment_files: tuple[str, ...]
    decisive: tuple[str, ...]
    triggers: tuple[Trigger, ...]
    output_files: dict[str, bool]

    @property
    def name(self) -> str:
        """Canonical."""
        return self.manager.unit

    @property
    def active(self) -> bool:
        """It runs now."""
        return self.properties.get("ActiveState") in ("active", "activating", "reloading")


def discover(host: Host, name: str, *, is_server: Callable[[Sequence[str]], bool], read_as: Host) -> FoundUnit:
    """Read a unit.

    Args:
        host: Where it is.
        name: Unit, alias or instance; `.service` may be left out.
        is_server: Whether a simple command is the server.
        read_as: The same host with the rights to read what the user may not.

    Raises:
        BadInputError: There is no such unit.
        RefusedError: Its command line cannot be understood, or not changed.
        HostError: The host or its systemd does not answer.
    """
    manager, properties = find(host, name)
    reader = _Reader(host, read_as)
    paths = (properties.get("FragmentPath", ""), *properties.words("DropInPaths"))
    files = tuple(UnitFile(path, reader.needed(path)) for path in paths if path)
    unit = Unit.parse(files)
    specifiers = specifier_values(properties, _facts(host, user=manager.user))
    wanted = [path for each in wanted_files(unit, specifiers) for path in reader.matching(each.path)]
    texts = {path: text for path in wanted if (text := reader.text(path)) is not None}
    environment = service_environment(
        unit, specifiers, texts, base=_base(host, manager, properties), version=_version(host)
    )
    scripts = reader.scripts(unit.exec_start().value)
    command = UnitCommand.parse(
        files,
        environment=environment,
        properties=properties,
        specifiers=specifiers,
        scripts=scripts,
        is_server=is_server,
        last_wins=True,  # llama-server, and argparse in SGLang and vLLM
    )
    return FoundUnit(
        manager=manager,
        properties=properties,
        files=files,
        unit=unit,
        command=command,
        environment=environment,
        environment_files=tuple(texts),
        decisive=(*wanted, *scripts),
        triggers=triggers(manager, properties),
        output_files=_output_files(unit, specifiers),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    host: Host
    privileged: Host

    def text(self, path: str) -> str | None:
        for host in (self.host, self.privileged):
            try:
                return host.read(path, _LIMIT).decode("utf-8", "surrogateescape")
            except OSError:
                continue
        return None

    def needed(self, path: str) -> str:
        text = self.text(path)
        if text is None:
            raise RefusedError(
                f"{path} cannot be read, and what the service runs is not known without it",
                next_step=f"see `ls -l {shlex.quote(path)}`; run draftmark as a user who may read it",
            )
        return text

    def matching(self, pattern: str) -> Sequence[str]:
        """The files of a pattern, sorted; the name itself where it is none."""
        if not set(pattern) & set("*?["):
            return (pattern,)
        script = 'for file in $1; do [ -f "$file" ] && printf "%s\\n" "$file"; done'
        ended = self.privileged.run(("sh", "-c", script, "sh", pattern))
        return sorted(ended.stdout.decode("utf-8", "surrogateescape").splitlines())

    def scripts(self, line: str) -> dict[str, str]:
        """Text of the scripts among the words of a command line: wrappers of the user's own."""
        found: dict[str, str] = {}
        for word in _paths(line):
            try:
                data = self.host.read(word, _SCRIPT_LIMIT)
            except OSError:
                continue
            if data.startswith(b"#!"):
                found[word] = data.decode("utf-8", "surrogateescape")
        return found


def _output_files(unit: Unit, specifiers: Mapping[str, str]) -> dict[str, bool]:
    """Files of StandardOutput= and StandardError=."""
    found: dict[str, bool] = {}
    for key in ("StandardOutput", "StandardError"):
        assignment = unit.last(key)
        manner, colon, path = (assignment.value if assignment else "").partition(":")
        if colon and manner in ("file", "append", "truncate"):
            found[printed(path, specifiers)] = manner == "truncate"
    return found


def _paths(line: str) -> Iterable[str]:
    try:
        words = shlex.split(line.lstrip("@-:+!|"))
    except ValueError:
        words = line.split()
    return [word for word in words[:8] if word.startswith("/")]


def _version(host: Host) -> int | None:
    ended = host.run(("systemctl", "--version"))
    words = ended.stdout.split()
    return int(words[1]) if ended.ok and len(words) > 1 and words[1].isdigit() else None


def _facts(host: Host, *, user: bool) -> HostFacts:
    """What specifiers need of the host, in one command."""
    script = (
        "uname -n; cat /etc/machine-id; cat /proc/sys/kernel/random/boot_id; uname -r; uname -m; "
        'id -un; id -u; id -gn; id -g; printf \'%s\\n\' "$HOME" "$SHELL" "$XDG_RUNTIME_DIR"'
    )
    ended = host.run(("sh", "-c", script))
    values = ended.stdout.decode("utf-8", "surrogateescape").splitlines()
    if len(values) != 12:
        return HostFacts()
    hostname, machine_id, boot_id, kernel, machine, name, uid, group, gid, home, shell, runtime = values
    facts = HostFacts(
        hostname=hostname,
        machine_id=machine_id,
        boot_id=boot_id,
        kernel=kernel,
        machine=machine,
    )
    if not user:
        return facts
    return replace(
        facts,
        user=name,
        uid=uid,
        group=group,
        gid=gid,
        home=home,
        shell=shell,
        environment={"XDG_RUNTIME_DIR": runtime} if runtime else {},
    )


def _base(host: Host, manager: Manager, properties: Properties) -> dict[str, str]:
    """What systemd sets by itself; of a user's manager, all of its own environment."""
    ended = host.run(manager.systemctl("show-environment"))
    found: dict[str, str] = {}
    for line in ended.stdout.decode("utf-8", "surrogateescape").splitlines() if ended.ok else ():
        name, equals, value = line.partition("=")
        if equals:
            found[name] = _unquoted(value)
    if user := properties.get("User", ""):
        ended = host.run(("getent", "passwd", user))
        fields = ended.stdout.decode("utf-8", "surrogateescape").strip().split(":")
        if ended.ok and len(fields) == 7:
            found |= {"USER": fields[0], "LOGNAME": fields[0], "HOME": fields[5], "SHELL": fields[6]}
    return found


def _unquoted(value: str) -> str:
    """As `systemctl show-environment` escapes: in `$'…'` where it has to."""
    if value.startswith("$'") and value.endswith("'"):
        return value[2:-1].encode().decode("unicode_escape", "replace")
    return value
