"""Putting a unit back as it was, by what its own host knows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from draftmark.errors import UnrestoredError
from draftmark.ports import Host

from .agent import Answer, Code, call_sent
from .dropin import TRIAL
from .holder import held_error, is_gone, measuring_error

RESTORE_S = 1800.0
"""How long a restore is waited for: a server can drain and load for minutes."""
SLICE_S = 15
"""How long one command of the script waits, so that between them we can tell what it waits for."""
COMMAND_S = 90.0

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore found and did.

    Attributes:
        nothing: There was nothing of Draftmark's to undo.
        removed: Drop-ins of Draftmark's that are gone.
        undone_keep: No tuning was under way: the drop-in of the last `keep` is gone.
        put_back: A kept drop-in that was there before the last `keep`, and is again.
        left: Somebody else had stopped the service, and it was left so.
        restarted: The service was started anew, because it ran something else than the original.
        changed: Files of the unit, and other properties, that somebody else changed meanwhile; left alone.
        added: Files of the unit that somebody else added meanwhile; left alone.
        missing: Files of the unit that somebody else removed meanwhile.
        saved: Where a drop-in of Draftmark's that somebody had edited was put aside.
        same_command: The effective command line is the original's; None when that is not known any more.
        active: ActiveState at the end; `activating` while a model loads.
        invocation: InvocationID at the end.
    """

    nothing: bool
    removed: tuple[str, ...]
    undone_keep: bool
    put_back: tuple[str, ...]
    left: bool
    restarted: bool
    changed: tuple[str, ...]
    added: tuple[str, ...]
    missing: tuple[str, ...]
    saved: tuple[str, ...]
    same_command: bool | None
    active: str
    invocation: str


def restore(
    host: Host,
    unit: str,
    *,
    user_scope: bool = False,
    force: bool = False,
    leave_kept: bool = False,
    progress: Progress = silent,
    timeout_s: float = RESTORE_S,
) -> RestoreReport:
    """Put a unit back as it was before Draftmark changed it, by what its own host knows: no run is needed.

    Without a tuning under way it undoes the last `keep`. Interrupted, it can be called again. A holder that ran
    on this very computer and is dead is not waited for.

    Args:
        host: As for `Lease.open`.
        unit: Its `Id`.
        user_scope: It belongs to the user's own manager.
        force: Also while another Draftmark is at work on it; that one then changes nothing any more. Not while it
            measures.
        leave_kept: Only what is half done is put back: a choice that was kept stays.
        progress: Told in words while the service takes long to stop or to start.
        timeout_s: When to give up waiting; the host goes on by itself as long as its switch is armed.

    Raises:
        RefusedError: Another Draftmark is at work on it.
        MeasuringError: It measures.
        UnrestoredError: It could not be put back in full; what is missing, and the commands, are in it.
        HostError: The host cannot be reached.
    """
    word = "force" if force else ""

    def once() -> Answer:
        words = (str(SLICE_S), word, "leave" if leave_kept else "")
        return call_sent(host, "restore", unit, user_scope=user_scope, words=words, timeout_s=COMMAND_S)

    answer = repeated(once, unit, progress, timeout_s)
    if answer.code in (Code.HELD, Code.BUSY) and is_gone(answer.get("holder")):
        word = answer.get("holder")
        answer = repeated(once, unit, progress, timeout_s)
    if answer.code is Code.HELD:
        raise held_error(unit, answer)
    if answer.get("measuring"):
        raise measuring_error(unit, answer)
    return report(unit, user_scope, answer)


def repeated(once: Callable[[], Answer], unit: str, progress: Progress, timeout_s: float = RESTORE_S) -> Answer:
    """Ask until it is finished; all that was said on the way is in the answer."""
    deadline = time.monotonic() + timeout_s
    said: list[tuple[str, str]] = []
    while True:
        answer = once()
        said += answer.values
        if answer.code is not Code.PENDING or time.monotonic() > deadline:
            return Answer(answer.code, tuple(said), answer.stderr)
        progress(f"waiting for {unit}: {answer.get('pending')}")


def report(unit: str, user_scope: bool, answer: Answer) -> RestoreReport:
    """What the script said of a restore.

    Raises:
        UnrestoredError: It did not succeed.
    """
    if answer.code is not Code.DONE:
        raise UnrestoredError(
            f"{unit} could not be put back in full",
            evidence=(*answer.evidence, *(f"by somebody else: {what}" for what in alterations(answer))),
            next_step=_by_hand(unit, "systemctl --user" if user_scope else "systemctl", answer),
        )
    exec_state = answer.get("exec")
    return RestoreReport(
        nothing=bool(answer.get("nothing")),
        removed=tuple(dict.fromkeys(answer.all("removed"))),
        undone_keep=bool(answer.get("undone_keep")),
        put_back=tuple(dict.fromkeys(answer.all("put_back"))),
        left=bool(answer.get("left")),
        restarted=bool(answer.get("restarted")),
        changed=tuple(dict.fromkeys((*answer.all("changed"), *answer.all("differs")))),
        added=tuple(dict.fromkeys(answer.all("new"))),
        missing=tuple(dict.fromkeys(answer.all("missing"))),
        saved=tuple(dict.fromkeys(answer.all("saved"))),
        same_command={"same": True, "differs": False}.get(exec_state),
        active=answer.get("active"),
        invocation=answer.get("invocation"),
    )


def _by_hand(unit: str, systemctl: str, answer: Answer) -> str:
    """What is left to do, and who can."""
    load = answer.get("load")
    if not load:
        return (
            f"draftmark restore unit:{unit}; or by hand: remove {TRIAL} below "
            f"`{systemctl} show -p DropInPaths {unit}`, then `{systemctl} daemon-reload` and "
            f"`{systemctl} restart {unit}`"
        )
    first = {
        "masked": f"`{systemctl} unmask {unit}` (with --runtime, if it was masked so)",
        "not-found": f"bring the file of {unit} back, then `{systemctl} daemon-reload`",
    }.get(load, f"see `{systemctl} status {unit}`, mend its file, then `{systemctl} daemon-reload`")
    return f"nothing of draftmark's is left there; {first}, then `{systemctl} restart {unit}`"


def alterations(answer: Answer) -> tuple[str, ...]:
    """What somebody else has done to the files that make the unit what it is, in words; empty when nothing."""
    said = (("new", "is new"), ("changed", "was changed"), ("missing", "is gone"))
    found = {path: how for key, how in said for path in answer.all(key)}
    return tuple(f"{path} {how}" for path, how in sorted(found.items()))
