"""The hold on a unit: taken before the first change, kept alive while it lasts, and ended by a close or a restore.

While a `Lease` is open the service's own host has a timer that puts the unit back by itself when no sign of life
has come for `lease_s`: the restore begins at the latest `lease_s` + `period_s` after the last one, or when the
command ends that was running then, and takes as long as the unit takes to stop. Seconds are of the host's uptime,
which no clock change moves.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256

from draftmark.errors import FailedError, HostError, RefusedError
from draftmark.ports import Host

from .agent import Answer, Code, call_in_place, call_sent
from .holder import held_error, holder_line, is_gone, measuring_error, wall_time
from .restore import (
    COMMAND_S,
    RESTORE_S,
    SLICE_S,
    Progress,
    RestoreReport,
    alterations,
    repeated,
    report,
    restore,
    silent,
)

LEASE_S = 60
MIN_LEASE_S = 6
DOWN_S = 300.0
"""So long a service may be down between a stop and a start: a controller that hangs then is as good as dead."""
_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """The connections to the server before the engine is asked whether it is idle.

    Attributes:
        connections: Established ones.
        gate: `strong`: what each has received is known; `weak`: without `ss` on the host, only new connections and
            unread bytes are; `none`: nothing listens on that port as far as the host's own network shows.
    """

    connections: int
    gate: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stop, or that it was not made.

    Attributes:
        busy: What came in since the look: nothing was stopped, look again. None when it was stopped.
        seconds: From the first signal until systemd called it stopped.
        gate: As in `Look`; `off` for a plain stop; `late` when the signal could not be sent while it was frozen (a
            dependent unit was stopped first, or the unit has an ExecStop=).
        active: ActiveState afterwards; anything but `inactive` and `failed` means that the time was up.
        result: systemd's Result=: `success`, `timeout`, `signal`, `exit-code`, ….
        code: ExecMainCode as systemd numbers it: 1 exited, 2 killed, 3 dumped; None if unknown.
        status: Exit status of the main process or the signal that ended it; None if unknown.
        killed_by_timeout: systemd lost patience.
        kills: systemd's lines that say so, and that name who was killed.
        invocation: InvocationID of what was stopped.
    """

    busy: str | None
    seconds: float = 0.0
    gate: str = "off"
    active: str = ""
    result: str = ""
    code: int | None = None
    status: int | None = None
    killed_by_timeout: bool = False
    kills: tuple[str, ...] = ()
    invocation: str = ""

    @property
    def ended(self) -> bool:
        """Nothing of it runs any more."""
        return self.busy is None and self.active in ("inactive", "failed")


class Lease:
    """One unit, held. Methods may be called from several threads; each is one command on the host.

    Every method raises `FailedError` once the hold is lost, and `HostError` when the host cannot be reached; those
    that change something raise `MeasuringError` while a measurement runs.
    """

    def __init__(
        self, host: Host, unit: str, *, user_scope: bool, token: str, lease_s: int, opened: Answer
    ) -> None:
        self._host = host
        self._unit = unit
        self._user_scope = user_scope
        self._token = token
        self._state = opened.get("state")
        self.lease_s = lease_s
        self.period_s = int(opened.get("period_s", "5"))
        self.dropin = opened.get("dropin")
        self.kept = opened.get("kept")
        self.invocation = opened.get("invocation")
        self.active = opened.get("active")
        self.stale_restored = bool(opened.get("stale"))
        self.altered: tuple[str, ...] = ()
        self._lost: str | None = None
        self._trouble: HostError | None = None
        self._ended = threading.Event()
        self._down_s: float | None = None
        self._measuring = 0
        self._marked = False
        self._last_s, self._last_at = time.monotonic(), wall_time()
        self._thread = threading.Thread(target=self._keep_alive, name=f"lease of {unit}", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        host: Host,
        unit: str,
        *,
        user_scope: bool = False,
        files: Sequence[str] = (),
        lease_s: int = LEASE_S,
        what: str = "draftmark tune",
        progress: Progress = silent,
    ) -> Lease:
        """Hold a unit: its original is saved and the dead man's switch is armed; nothing of the unit is changed.

        What another Draftmark left behind when it died is put back first.

        Args:
            host: Where the unit is; commands run as root there, or as the user whose unit it is.
            unit: Its `Id`, as systemd has it.
            user_scope: It belongs to the user's own manager.
            files: Further files whose bytes are to be compared at the end, such as environment files.
            lease_s: Without a sign of life for so many seconds, the host puts the unit back by itself.
            what: What holds it, for whoever comes second.
            progress: Told when a leftover takes long to be put back.

        Raises:
            RefusedError: Somebody else holds it, or it is no unit that could be changed.
            FailedError: It could not be set up; nothing was changed.
            HostError: The host cannot be reached.
        """
        if lease_s < MIN_LEASE_S:
            raise ValueError(f"a lease of less than {MIN_LEASE_S} s would end between two signs of life")
        token = secrets.token_hex(16)
        words = (str(lease_s), token, holder_line(what), *files)
        deadline = time.monotonic() + RESTORE_S
        while True:
            answer = cls._opened(host, unit, user_scope, words)
            if answer.code is not Code.PENDING or time.monotonic() > deadline:
                break
            progress(f"what an earlier run left is put back: {answer.get('pending')}")
        if answer.code is Code.HELD and is_gone(answer.get("holder")):
            restore(host, unit, user_scope=user_scope, leave_kept=True, progress=progress)
            answer = cls._opened(host, unit, user_scope, words)
        if answer.code is Code.HELD:
            raise held_error(unit, answer)
        if answer.code is not Code.DONE:
            raise RefusedError(
                f"{unit} cannot be held for a change, so nothing was changed",
                evidence=answer.evidence,
                next_step="see the reason above",
            )
        return cls(host, unit, user_scope=user_scope, token=token, lease_s=lease_s, opened=answer)

    @staticmethod
    def _opened(host: Host, unit: str, user_scope: bool, words: Sequence[str]) -> Answer:
        try:
            return call_sent(host, "open", unit, user_scope=user_scope, words=words, timeout_s=COMMAND_S)
        except HostError as error:
            raise HostError(
                f"{host.name} could not be reached any more while {unit} was being held; nothing of it was changed",
                evidence=(error.what,),
                next_step="nothing is to be put back, and a hold that was taken ends by itself; to see to it: "
                f"draftmark restore unit:{unit}, with the same --host",
            ) from error

    @property
    def lost(self) -> str | None:
        """Why the hold is no longer ours; None while it is."""
        return self._lost

    @property
    def left_s(self) -> float:
        """Seconds until the host begins to put the unit back by itself, at the latest; negative afterwards."""
        return self._last_s + self.lease_s + self.period_s - time.monotonic()

    @property
    def trouble(self) -> HostError | None:
        """Why the last sign of life did not arrive; None when it did."""
        return self._trouble

    def beat(self) -> None:
        """A sign of life. A thread gives one every sixth of the lease; this one says when it does not arrive."""
        self._check()
        self._judge(self._call("beat", timeout_s=max(2.0, self.lease_s / 3)), "give a sign of life for")
        self._seen()

    def edit(self, text: str) -> tuple[str, ...]:
        """Write the trial's drop-in and make systemd read it; what systemd does not take is taken back at once.

        Returns:
            The effective command lines, as `systemctl show -p ExecStart` prints them without their last run.
        """
        return self._sent("edit", text, verb="edit").all("exec")

    def compare(self) -> tuple[str, ...]:
        """What somebody else has changed of the unit's files since it is held, in words; `altered` afterwards.

        By their bytes. Draftmark's own drop-ins do not count, nor does what systemd has not read yet of new files:
        ask after an `edit`, by which it has.
        """
        self.altered = alterations(self._done("compare", verb="compare the files of"))
        return self.altered

    def leave(self) -> None:
        """Somebody else has stopped the service: whoever puts it back does not start it, unless it runs by then."""
        self._done("leave", verb="leave alone")

    def clear(self) -> tuple[str, ...]:
        """Remove the trial's drop-in; the effective command lines, as of `edit`. The service is not touched."""
        return self._done("clear", verb="take the drop-in from").all("exec")

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """While inside, the host lets nobody stop, change or put back the unit.

        Not this lease, and not anybody's `draftmark restore`; only the host's own switch, when no sign of life has
        come for as long as the lease.
        """
        self._check()
        self._measuring += 1
        try:
            self._marked = True  # before the host is told: an interrupted command may have been carried out
            self._judge(self._call("measure", wall_time()), "measure")
            yield
        finally:
            self._measuring -= 1
            with suppress(FailedError):  # the measurement has its result; the next command makes up for it
                self._unmark()

    def _unmark(self) -> None:
        if self._marked and not self._measuring:
            self._judge(self._call("measure"), "end a measurement on")
            self._marked = False

    def look(self, port: int) -> Look:
        """Note the connections to the server; afterwards ask the engine whether it is idle, then `stop`.

        Ask over a connection that is closed again: an open one that received something since is a request too.
        """
        answer = self._done("look", str(port), verb="look at the connections of")
        return Look(int(answer.get("connections", "0")), answer.get("gate", "none"))

    def stop(self, port: int | None, *, timeout_s: float) -> Stopped:
        """Stop the service; with `port`, only if nothing came in at that port since the last `look`.

        Args:
            port: None for a service that serves nobody: it did not become ready, or nobody can reach it.
            timeout_s: How long to wait for systemd; longer than the unit's own TimeoutStopSec.
        """
        words = (str(port or 0), "plain" if port is None else "gate", f"{timeout_s:.0f}")
        self._ready()
        answer = self._call("stop", *words, timeout_s=timeout_s + _GRACE_S)
        if answer.code is Code.BUSY and not answer.get("measuring"):
            return Stopped(busy=answer.get("busy"))
        self._judge(answer, "stop")
        self._down_s = time.monotonic()
        timeouts = answer.all("timeout")
        return Stopped(
            busy=None,
            seconds=float(answer.get("seconds", "0")),
            gate=answer.get("gate"),
            active=answer.get("active"),
            result=answer.get("result"),
            code=answer.number("code"),
            status=answer.number("status"),
            killed_by_timeout=bool(timeouts) or answer.get("result") == "timeout",
            kills=(*timeouts, *answer.all("killed")),
            invocation=answer.get("invocation"),
        )

    def start(self) -> None:
        """Ask systemd to start it, a start limit forgotten; does not wait."""
        self._down_s = None
        self._done("start", verb="start")

    def keep(self, text: str) -> str:
        """Make `text` the one drop-in that lasts, in place of the trial's, and let go. The service is not touched.

        Returns:
            Its path. The hold has ended.

        Raises:
            FailedError: It could not be written, or has not the effect of the trial's: the trial's is there again.
        """
        answer = self._sent("keep", text, verb="keep the drop-in of")
        self._end()
        return answer.get("kept")

    def close(self) -> None:
        """Let go of a unit that has no trial's drop-in any more: the switch is disarmed, nothing of ours stays."""
        self._done("close", verb="let go of")
        self._end()

    def restore(self, *, progress: Progress = silent) -> RestoreReport:
        """Put the original back, wait until it is up again, and let go.

        Raises:
            UnrestoredError: The files are as they were, but the service does not run.
        """
        self._ready()

        def once() -> Answer:
            return self._call("restore", str(SLICE_S), timeout_s=COMMAND_S)

        answer = repeated(once, self._unit, progress)
        if answer.code is Code.LOST:
            raise self._lose()
        if answer.get("measuring"):
            raise measuring_error(self._unit, answer)
        self.altered = alterations(answer)
        found = report(self._unit, self._user_scope, answer)
        self._end()
        return found

    def abandon(self) -> None:
        """Stop giving signs of life: the host puts the unit back by itself when the lease has run out."""
        self._end()

    def _call(self, command: str, *words: str, data: bytes = b"", timeout_s: float = COMMAND_S) -> Answer:
        argv = (self._token, *words)
        return call_in_place(self._host, self._state, command, argv, data=data, timeout_s=timeout_s)

    def _done(self, command: str, *words: str, verb: str, data: bytes = b"") -> Answer:
        self._ready()
        return self._judge(self._call(command, *words, data=data), verb)

    def _sent(self, command: str, text: str, *, verb: str) -> Answer:
        """With its checksum: what is cut on the way is not taken for all of it."""
        data = text.encode()
        return self._done(command, sha256(data).hexdigest(), verb=verb, data=data)

    def _judge(self, answer: Answer, verb: str) -> Answer:
        if answer.code is Code.LOST:
            raise self._lose()
        if answer.get("measuring"):
            raise measuring_error(self._unit, answer)
        if answer.code is not Code.DONE:
            raise FailedError(
                f"could not {verb} {self._unit}",
                evidence=(*answer.evidence, *answer.all("busy")),
                next_step="see the reason above, and run it again",
            )
        return answer

    def _ready(self) -> None:
        self._check()
        self._unmark()

    def _check(self) -> None:
        if self._lost is not None:
            raise FailedError(self._lost, next_step="run it again; nothing is to be put back")
        if self._ended.is_set():
            raise FailedError(f"{self._unit} is no longer held")

    def _lose(self) -> FailedError:
        if self._lost is None:
            self._lost = (
                "the service was put back by its dead man's switch, a `draftmark restore` or a reboot, between "
                f"{self._last_at} and {wall_time()}: the host does not know this run any more"
            )
        self._ended.set()
        return FailedError(self._lost, next_step="run it again; nothing is to be put back")

    def _seen(self) -> None:
        self._last_s, self._last_at = time.monotonic(), wall_time()
        self._trouble = None

    def _end(self) -> None:
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def _keep_alive(self) -> None:
        while not self._ended.wait(self.lease_s / 6):
            if self._down_s is not None and time.monotonic() - self._down_s > DOWN_S:
                continue
            began = time.monotonic()
            try:
                answer = self._call("beat", timeout_s=max(2.0, self.lease_s / 3))
            except HostError as error:
                self._trouble = error
            else:
                if answer.code is Code.DONE:
                    self._last_s, self._last_at, self._trouble = began, wall_time(), None
                elif answer.code is Code.LOST and not self._ended.is_set():
                    self._lose()
