"""Whether a Draftmark is at work on a unit, by what the unit's own host knows. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.ports import Host

from .agent import Code, call_sent
from .holder import Holder, is_gone


@dataclass(frozen=True, slots=True)
class Hold:
    """What there is of a tuning.

    Attributes:
        held: A Draftmark holds the unit, or did until it died: its host has not put the unit back yet.
        holder: Who; empty where this user may not read it.
        gone: That process is known to be dead.
        measuring: Since when it measures, UTC; `` while it does not, or where that cannot be read.
        last_sign_s: Seconds since its last sign of life.
        lease_s: After so many without one, the host puts the unit back by itself.
        trial: Path of a trial's drop-in that is there; `` for none.
    """

    held: bool
    holder: Holder
    gone: bool = False
    measuring: str = ""
    last_sign_s: int | None = None
    lease_s: int | None = None
    trial: str = ""


def hold_of(unit: str, *, user_scope: bool, hosts: tuple[Host, ...]) -> Hold | None:
    """Look.

    Args:
        unit: Its `Id`.
        user_scope: It belongs to the user's own manager.
        hosts: The unit's, with rights and without: the first that answers counts.

    Returns:
        None when nothing of a tuning is there, or when the host does not say.

    Raises:
        HostError: The host cannot be reached any more.
    """
    for host in hosts:
        answer = call_sent(host, "status", unit, user_scope=user_scope)
        if answer.code is not Code.DONE:
            continue
        state, trial = answer.get("state"), answer.get("dropin")
        if not state and not trial:
            return None
        line = answer.get("holder")
        return Hold(
            held=bool(state),
            holder=Holder.of(line),
            gone=is_gone(line),
            measuring=_measuring(host, state) if state else "",
            last_sign_s=answer.number("last_sign_s") if line else None,
            lease_s=answer.number("lease_s") if line else None,
            trial=trial,
        )
    return None


def _measuring(host: Host, state: str) -> str:
    try:
        return host.read(f"{state}/measuring", 100).decode("ascii", "replace").strip()
    except OSError:
        return ""
