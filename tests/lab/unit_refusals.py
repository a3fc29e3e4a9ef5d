"""What Draftmark refuses or fails at on a live unit: one message, the right exit status, and nothing changed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .llm_unit import SWEEP, UNIT, LlmLab, State
from .machine import Ended
from .root import USER
from .sshd import Sshd, keygen
from .unit_runs import Scripts
from .unit_tune import Played, where

_PHASE_S = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """One of them.

    Attributes:
        name: In words.
        status: Exit statuses that are right.
        says: A part of the message.
        play: What is called.
        while_so: What makes it so.
        begun: It is no refusal: the service may have been restarted by then.
    """

    name: str
    status: tuple[int, ...]
    says: str
    play: Callable[[], Ended]
    while_so: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    begun: bool = False


def refusals(lab: LlmLab, folder: Path, only: Collection[str] = ()) -> Iterator[Played]:
    """All of them, or those named."""
    for case in _cases(lab, folder):
        if only and case.name not in only:
            continue
        before, invocation, began = lab.state(), lab.invocation(), time.monotonic()
        with case.while_so():
            ended = case.play()
        faults = [*_wrong(case, ended), *_changed(lab, case, before, invocation)]
        lines = ended.err.strip().splitlines()
        first = next((number for number, line in enumerate(lines) if line.startswith("error")), 0)
        note = "\n".join((f"exit {ended.status}", *(f"      {line}" for line in lines[first:])))
        yield Played(case.name, time.monotonic() - began, note, tuple(faults))


def _wrong(case: Case, ended: Ended) -> Iterator[str]:
    if ended.status not in case.status:
        yield f"exit status {ended.status}, not {case.status}"
    if "Traceback" in ended.err or "draftmark itself failed" in ended.err:
        yield f"no message for people: {ended.err}"
    if sum(line.startswith("error") for line in ended.err.splitlines()) != 1:
        yield f"not one message: {ended.err}"
    if case.says not in ended.err:
        yield f"it does not say: {case.says}"


def _changed(lab: LlmLab, case: Case, before: State, invocation: str) -> Iterator[str]:
    yield from lab.faults(before)
    if not case.begun and lab.invocation() != invocation:
        yield "the service was restarted"


def _cases(lab: LlmLab, folder: Path) -> Iterator[Case]:
    near = f"root@127.0.0.1:{lab.ssh_port}"

    def tune(host: str | None = None, user: str = "root", *words: str) -> Callable[[], Ended]:
        return lambda: lab.controller(*words, host=host, user=user).wait(300)

    yield Case("no sudo, local", (30,), "needs root", tune(None, USER))
    yield Case("no sudo, ssh", (30,), "needs root", tune(f"{USER}@127.0.0.1:{lab.ssh_port}"))
    for host in (None, near):
        kind = where(host)
        scripts = Scripts(lab, host)
        yield Case(
            f"/etc read-only, --keep, {kind}",
            (30, 50),
            "ead-only file system",
            partial(_ended, scripts, "keep"),
            partial(_read_only_etc, lab, scripts),
            begun=True,
        )
        yield Case(f"/run full, {kind}", (30, 50), "No space left", tune(host), partial(_full, lab, "/run"))
    # systemd itself does not reload without room: the unit is back when there is some again.
    mid_run = (0, 10, 40, 50, 51)
    yield Case("/run full in mid-run, local", mid_run, "", lambda: _filled_in_mid_run(lab), begun=True)
    yield Case("run directory full, local", (50,), "space", lambda: _small_run_directory(lab), begun=True)
    yield from _hosts(lab, folder, tune)


def _ended(scripts: Scripts, script: str) -> Ended:
    return scripts.begin(script).wait(300)


def _hosts(lab: LlmLab, folder: Path, tune: Callable[..., Callable[[], Ended]]) -> Iterator[Case]:
    near = f"root@127.0.0.1:{lab.ssh_port}"
    bare = Sshd(folder / "bare", users=(f"root:x:0:0:root:{folder}:/bin/sh",))
    bare.authorise(lab.home / ".ssh/id_ed25519")
    known = lab.home / ".ssh/known_hosts"
    with known.open("a") as file:
        file.write(bare.known_as())
    yield Case("no systemd, ssh", (2, 30, 50), "systemd", tune(f"root@127.0.0.1:{bare.port}"))
    bare.cut()
    yield Case("nothing listens there", (50,), "refuses the connection", tune(f"root@127.0.0.1:{bare.port}"))
    yield Case("no such host", (50,), "no host is named", tune("root@nowhere.invalid"))
    other = keygen(folder / "other").with_suffix(".pub").read_text()
    wrong = f"[127.0.0.1]:{lab.ssh_port} {other}"
    yield Case("wrong host key", (30,), "has changed", tune(near), partial(_instead, known, wrong))
    yield Case("unknown host key", (30,), "not known", tune(near), partial(_instead, known, ""))
    key = lab.home / ".ssh/id_ed25519"
    yield Case("not let in", (50,), "does not let us in", tune(near), partial(_other_key, key, folder / "other"))
    yield Case("no such unit", (2,), "nosuch", lambda: _of_another_unit(lab, near))


def _of_another_unit(lab: LlmLab, host: str) -> Ended:
    words = [word.replace(UNIT, "nosuch.service") for word in lab.words("tune", *SWEEP)]
    del host
    return lab.machine.run(words)


@contextlib.contextmanager
def _instead(file: Path, text: str) -> Iterator[None]:
    was = file.read_bytes()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_bytes(was)


@contextlib.contextmanager
def _other_key(key: Path, other: Path) -> Iterator[None]:
    with _instead(key, other.read_text()), _instead(key.with_suffix(".pub"), other.with_suffix(".pub").read_text()):
        yield


@contextlib.contextmanager
def _read_only_etc(lab: LlmLab, scripts: Scripts) -> Iterator[None]:
    scripts.prepare()
    lab.machine.check(["sh", "-c", "mount --bind /etc /etc && mount -o remount,bind,ro /etc"])
    try:
        yield
    finally:
        lab.machine.check(["umount", "/etc"])


@contextlib.contextmanager
def _full(lab: LlmLab, disk: str) -> Iterator[None]:
    """A memory disk that has no room left."""
    used = lab.machine.check(["df", "--output=used", "-k", disk]).split()[-1]
    lab.machine.check(["mount", "-o", f"remount,size={int(used) + 8}k", disk])
    lab.machine.run(["sh", "-c", 'cat /dev/zero >"$0/filled" 2>/dev/null', disk])
    try:
        yield
    finally:
        lab.machine.check(["sh", "-c", 'mount -o remount,size=50% "$0" && rm -f "$0/filled"', disk])


def _filled_in_mid_run(lab: LlmLab) -> Ended:
    controller = lab.controller()
    assert controller.await_phase("measure"), controller.wait()
    with _full(lab, "/run"):
        ended = controller.wait(300)
    with contextlib.suppress(AssertionError):  # who looks afterwards sees it
        lab.machine.until(f"test ! -e /run/draftmark/{UNIT}", seconds=_PHASE_S * 2)
    return ended


def _small_run_directory(lab: LlmLab) -> Ended:
    disk = "/tmp/small"
    lab.machine.check(["sh", "-c", 'mkdir -p "$0" && mount -t tmpfs -o size=48k small "$0"', disk])
    try:
        return lab.machine.run(lab.words("tune", *SWEEP, "--run", f"{disk}/run"), seconds=300)
    finally:
        lab.machine.check(["umount", disk])


def both(lab: LlmLab) -> tuple[str | None, str | None]:
    """The two ways to a unit: on its own host, over SSH."""
    return None, f"root@127.0.0.1:{lab.ssh_port}"


def second(lab: LlmLab, hosts: Sequence[str | None]) -> Iterator[Played]:
    """While one Draftmark is at work, others of either kind of host are refused, and told who it is."""
    _, ssh = both(lab)
    for host in hosts:
        before, began = lab.state(), time.monotonic()
        first = Scripts(lab, host).begin("fresh")
        assert first.await_phase("begin", seconds=_PHASE_S), first.wait()
        pid = first.pid if host is not None else _inner_pid(first.pid)
        faults, notes = [], []
        for verb, other in (("tune", None), ("tune", ssh), ("restore", None), ("restore", ssh)):
            words = SWEEP if verb == "tune" else ()
            ended = lab.draftmark(verb, *words, host=other)
            notes.append(f"      {verb} {where(other)}: exit {ended.status}: {_told(ended)}")
            why = "at work on" in ended.err or "a measurement runs on" in ended.err
            if ended.status != 30 or f"pid {pid}," not in ended.err or not why:
                faults.append(f"{verb} {where(other)}: exit {ended.status}: {ended.err}")
        ended = first.wait()
        if ended.status not in (0, 10, 40):
            faults.append(f"the first was disturbed: exit {ended.status}: {ended.err[-800:]}")
        faults += lab.faults(before)
        yield Played(f"held from {where(host)}", time.monotonic() - began, "\n".join(("", *notes)), tuple(faults))


def _inner_pid(pid: int) -> int:
    """A process of the lab's, as it is numbered there."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])


def _told(ended: Ended) -> str:
    return " ".join(line.strip() for line in ended.err.splitlines() if "held by" in line or "sign of life" in line)
