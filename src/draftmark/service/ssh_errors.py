"""Why an SSH connection could not be made, in words, with the next step."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from draftmark.errors import DraftmarkError, HostError, RefusedError
from draftmark.service.ssh_destination import Destination
from draftmark.service.ssh_trust import HostKeys, Witness

_BANNER_LINES = 5
_KEY_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk", "id_dsa")


def host_key_error(target: Destination, keys: HostKeys, witness: Witness, error: Exception) -> DraftmarkError:
    """The error for a server whose key is not the one that is known, or none is."""
    shown = f"{_named(witness.shown)}" if witness.shown is not None else ""
    if "revoked" in str(error):
        return RefusedError(
            f"the host key of {target} is marked as revoked; nothing was sent to it",
            evidence=(str(error),),
            next_step="ask who runs the host; @revoked stands in one of " + _files(keys),
        )
    if witness.shown is None:  # such as a certificate of a trusted authority that has run out
        return RefusedError(
            f"the host key of {target} is not accepted; nothing was sent to it",
            evidence=(str(error),),
            next_step=f"see what `{target.ssh_command}` says",
        )
    kind = "of its certificate authority: " if witness.authority else ""
    if keys.known:
        known = tuple(f"known of {keys.label}: {_named(key)}" for key in keys.known)
        return RefusedError(
            f"the host key of {target} has changed: it is another computer, a new installation, or someone "
            "in between; nothing was sent to it",
            evidence=(f"shown now: {kind}{shown}", *known),
            next_step=f"ask who runs the host; if the new key is right, "
            f"`ssh-keygen -R '{keys.label}'`, then `{target.ssh_command}` asks about it",
        )
    return RefusedError(
        f"the host key of {target} is not known, and is never accepted unasked; nothing was sent to it",
        evidence=(f"{kind}{shown}", f"{keys.label} is in none of {_files(keys)}"),
        next_step=f"compare the fingerprint, and accept it with `{target.ssh_command}`",
    )


def _named(key: asyncssh.SSHKey | None) -> str:
    return f"{key.get_algorithm()} {key.get_fingerprint()}" if key is not None else ""


def _files(keys: HostKeys) -> str:
    return ", ".join(map(str, keys.files)) or "~/.ssh/known_hosts, /etc/ssh/ssh_known_hosts"


def permission_error(
    target: Destination, identities: Sequence[str], witness: Witness, error: Exception
) -> DraftmarkError:
    """The error for a server that let none of our keys in. Reads key files to see whether one has a passphrase."""
    agent = os.environ.get("SSH_AUTH_SOCK")
    files = [Path(name).expanduser() for name in identities] or [Path.home() / ".ssh" / name for name in _KEY_NAMES]
    locked = [path for path in files if _has_passphrase(path)]
    banner = tuple(line for line in witness.banner.splitlines() if line.strip())[:_BANNER_LINES]
    evidence = (
        str(error),
        *(f"{path}: has a passphrase, and nobody is asked for it here" for path in locked),
        f"agent: {agent}" if agent else "agent: none (SSH_AUTH_SOCK is not set)",
        *(f"the server: {line}" for line in banner),
    )
    if locked:
        start = "" if agent else 'eval "$(ssh-agent)" && '
        step = f"{start}ssh-add {locked[0]}"
    else:
        command = target.ssh_command.replace("ssh", "ssh -o BatchMode=yes", 1)
        step = f"give the host a public key of yours, until `{command}` works"
    return HostError(f"{target} does not let us in", evidence=evidence, next_step=step)


def _has_passphrase(path: Path) -> bool:
    try:
        asyncssh.read_private_key(path)
    except asyncssh.KeyImportError as error:
        return str(error).startswith("Passphrase")
    except (OSError, ValueError):
        pass
    return False


def connect_error(
    target: Destination, error: BaseException, seconds: float, more: tuple[str, ...] = ()
) -> DraftmarkError:
    """The error for a connection that was not made for any other reason; `more` is evidence of others."""
    words, step = _reason(target, error, seconds)
    said = str(error).strip()
    evidence = (*((f"{type(error).__name__}: {said}",) if said else ()), *more)
    return HostError(words, evidence=evidence, next_step=step)


def _reason(target: Destination, error: BaseException, seconds: float) -> tuple[str, str]:
    look = f"see what `{target.ssh_command}` says"
    number = _errno(error)
    match error:
        case socket.gaierror():
            return f"no host is named {target.host}", "check the name, and ~/.ssh/config if it is an alias there"
        case _ if number == errno.ECONNREFUSED:
            return f"{target} refuses the connection: no SSH server listens there", "check the port, and sshd there"
        case TimeoutError():
            return f"{target} does not answer within {seconds:.0f} s", f"check that it is up and reachable; {look}"
        case _ if number in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return f"there is no way to {target} from here", "check the network, VPN or ProxyJump"
        case asyncssh.ConfigParseError():
            return "the SSH configuration cannot be read", "correct that line; a comment needs a line of its own"
        case asyncssh.ChannelOpenError():
            return f"the jump host cannot connect to {target}", look
        case asyncssh.KeyExchangeFailed():
            return f"{target} and we have no cipher or key type in common", look
        case asyncssh.ConnectionLost() | ConnectionResetError():
            return f"{target} closed the connection before anyone was let in", look
        case _:
            return f"no SSH connection to {target} can be made", look


def _errno(error: BaseException) -> int | None:
    """The number of a failed system call; of the first, where one text tells of several addresses."""
    if not isinstance(error, OSError) or error.errno is not None:
        return getattr(error, "errno", None)
    first = re.search(r"\[Errno (\d+)\]", str(error))
    return int(first[1]) if first else None
