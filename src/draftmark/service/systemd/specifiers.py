"""`%` specifiers of a unit: what each stands for, where that can be known without asking systemd.

After systemd.unit(5), "Specifiers". A value that is not known leaves a stand-in, so that a word that nobody has to
understand or change may hold any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from draftmark.service.systemd.pieces import Piece, merged

_SYSTEM_DIRECTORIES = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc"}
_OS_RELEASE = {
    "o": "ID",
    "w": "VERSION_ID",
    "B": "BUILD_ID",
    "W": "VARIANT_ID",
    "M": "IMAGE_ID",
    "A": "IMAGE_VERSION",
}
_ARCHITECTURES = {
    "x86_64": "x86-64",
    "aarch64": "arm64",
    "ppc64le": "ppc64-le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What specifiers take from the host; empty where unknown.

    Attributes:
        hostname: As `uname -n`.
        pretty_hostname: PRETTY_HOSTNAME of /etc/machine-info.
        machine_id: As /etc/machine-id.
        boot_id: As /proc/sys/kernel/random/boot_id.
        kernel: As `uname -r`.
        machine: As `uname -m`.
        os_release: Of /etc/os-release.
        user, uid, group, gid, home, shell: Of the user that the manager runs as; needed for a user manager only.
        environment: Of the manager's own process, for a user manager: XDG_RUNTIME_DIR and the like.
    """

    hostname: str = ""
    pretty_hostname: str = ""
    machine_id: str = ""
    boot_id: str = ""
    kernel: str = ""
    machine: str = ""
    os_release: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    uid: str = ""
    group: str = ""
    gid: str = ""
    home: str = ""
    shell: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def specifier_values(properties: Mapping[str, str], host: HostFacts | None = None) -> dict[str, str]:
    """Letter to value, of all that are known.

    Args:
        properties: Of `systemctl show`: Id, FragmentPath, ControlGroup.
        host: None when nothing is known of it.
    """
    host = host or HostFacts()
    known = {**_of_name(properties.get("Id", "")), **_of_host(host)}
    if path := properties.get("FragmentPath", ""):
        known |= {"y": path, "Y": str(PurePosixPath(path).parent)}
    if is_user_unit(properties):
        known |= _of_user_manager(host)
    else:
        known |= _of_system_manager(host, properties.get("Id", ""))
    return known


def is_user_unit(properties: Mapping[str, str]) -> bool:
    """Whether a user's own manager runs the unit."""
    group, path = properties.get("ControlGroup", ""), properties.get("FragmentPath", "")
    return "/user@" in group or "/systemd/user/" in path or "/systemd/user.control/" in path


def _of_name(name: str) -> dict[str, str]:
    if "." not in name:
        return {}
    stem = name.rpartition(".")[0]
    prefix, at, instance = stem.partition("@")
    last = prefix.rpartition("-")[2]
    known = {"n": name, "N": stem, "p": prefix, "P": unescaped(prefix), "j": last, "J": unescaped(last)}
    path = unescaped(instance if at else prefix)
    known |= {"i": instance, "I": unescaped(instance), "f": "/" if path == "/" else f"/{path.lstrip('/')}"}
    return known


def unescaped(name: str) -> str:
    r"""`-` is `/`, `\x2d` is `-`."""
    data = _ESCAPED.sub(
        lambda found: chr(0xDC00 + code if (code := int(found[1], 16)) > 127 else code), name.replace("-", "/")
    )
    return data.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _of_host(host: HostFacts) -> dict[str, str]:
    known = {
        "H": host.hostname,
        "l": host.hostname.partition(".")[0],
        "q": host.pretty_hostname or host.hostname,
        "m": host.machine_id,
        "b": host.boot_id.replace("-", ""),
        "v": host.kernel,
        "a": _ARCHITECTURES.get(host.machine, ""),
    }
    known = {letter: value for letter, value in known.items() if value}
    if host.os_release:
        known |= {letter: host.os_release.get(name, "") for letter, name in _OS_RELEASE.items()}
    return known


def _of_system_manager(host: HostFacts, name: str) -> dict[str, str]:
    known = {**_SYSTEM_DIRECTORIES, "h": "/root", "u": "root", "U": "0", "g": "root", "G": "0"}
    known |= {"T": "/tmp", "V": "/var/tmp"}  # noqa: S108 - what they mean, nothing is opened
    if name:
        known["d"] = f"/run/credentials/{name}"
    return known | ({"s": host.shell} if host.shell else {})


def _of_user_manager(host: HostFacts) -> dict[str, str]:
    environment = host.environment
    known = {"u": host.user, "U": host.uid, "g": host.group, "G": host.gid, "h": host.home, "s": host.shell}
    known["t"] = environment.get("XDG_RUNTIME_DIR", "")
    if host.home:
        known["C"] = environment.get("XDG_CACHE_HOME", f"{host.home}/.cache")
        known["E"] = environment.get("XDG_CONFIG_HOME", f"{host.home}/.config")
    # %S and %L moved from the configuration to the state directory with systemd 254: left unknown.
    return {letter: value for letter, value in known.items() if value}


def substituted(pieces: Sequence[Piece], known: Mapping[str, str]) -> tuple[Piece, ...]:
    """A word with its specifiers replaced; one that is not known becomes a stand-in."""
    out: list[Piece] = []
    at = 0
    while at < len(pieces):
        pair = pieces[at : at + 2]
        if pair[0].value != "%" or len(pair) < 2:
            out.append(pair[0])
            at += 1
            continue
        letter = pair[1].value
        at += 2
        if letter == "%":
            out.append(merged(pair, "%"))
        elif letter in known:
            out.append(merged(pair, known[letter]))
        elif letter.isascii() and letter.isalnum():
            out.append(merged(pair, f"%{letter}", known=False))
        else:
            out += pair  # systemd leaves it as it is
    return tuple(out)
