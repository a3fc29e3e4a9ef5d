"""A service of several members, such as one server over several nodes, supervised as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from draftmark.errors import BusyError, HostError
from draftmark.model import Hand, Identity, Intervention, StopOutcome, StopReport
from draftmark.ports import CpuSample, Supervisor

_STAGGER_S = 0.05  # so that the signals go out in order
_WORST = (StopOutcome.KILLED, StopOutcome.SLOW, StopOutcome.CLEAN, StopOutcome.ALREADY_DEAD)


class MembersSupervisor:
    """ports.Supervisor of members in rank order: rank 0 answers requests, its command line is the service's.

    Started in rank order, stopped in reverse, all at once: members wait for one another in their shutdown.

    Args:
        members: In rank order.
        follow: From a member's original command line and rank 0's new one to the member's new one.
    """

    def __init__(
        self,
        members: Sequence[Supervisor],
        follow: Callable[[Sequence[str], Sequence[str]], tuple[str, ...]],
    ) -> None:
        if not members:
            raise ValueError("a service without members")
        self._members = tuple(members)
        self._follow = follow

    @property
    def original(self) -> tuple[str, ...]:
        """Rank 0's command line, as found."""
        return self._members[0].original

    def _commands(self, command: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(command), *(self._follow(m.original, command) for m in self._members[1:])]

    def start(self, command: Sequence[str], log: Path) -> Identity:
        """Start all, in rank order; the logs of the others stand beside rank 0's: `server.rank1.log`."""
        for rank, (member, words) in enumerate(zip(self._members, self._commands(command), strict=True)):
            member.start(words, log if rank == 0 else log.with_suffix(f".rank{rank}{log.suffix}"))
        identity = self.identity()
        if identity is None:  # one ended while the others were started: rank 0 tells it apart, the log says why
            first = self._members[0].identity()
            return first or Identity(pid=0, started_ticks=0)
        return identity

    def identity(self) -> Identity | None:
        """Of rank 0, with the invocations of all; None unless all run."""
        found = [member.identity() for member in self._members]
        known = [identity for identity in found if identity is not None]
        if len(known) < len(found):
            return None
        parts = (identity.invocation or f"{identity.pid}@{identity.started_ticks}" for identity in known)
        return Identity(pid=known[0].pid, started_ticks=known[0].started_ticks, invocation="+".join(parts))

    def exit_code(self) -> int | None:
        """Of the first member in rank order that has ended with a failure, or else at all."""
        codes = [code for member in self._members if (code := member.exit_code()) is not None]
        return next((code for code in codes if code), codes[0] if codes else None)

    @property
    def altered(self) -> tuple[str, ...]:
        """Of all."""
        return tuple(what for member in self._members for what in member.altered)

    def heed(self) -> Intervention | None:
        """Of each; a stop before a start."""
        found = [hand for member in self._members if (hand := member.heed()) is not None]
        return min(found, key=lambda each: each.hand is not Hand.STOPPED, default=None)

    def gather_log(self) -> None:
        """Of all."""
        for member in self._members:
            member.gather_log()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """While inside, none of them is stopped, changed or restarted."""
        with ExitStack() as stack:
            for member in self._members:
                stack.enter_context(member.measuring())
            yield

    def check(self) -> None:
        """Each."""
        for member in self._members:
            member.check()

    def look(self) -> None:
        """Who is connected to any of them."""
        for member in self._members:
            member.look()

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:
        """Stop all, the last rank first, without waiting for one before the next is asked.

        Rank 0, where requests come in, is asked last, and is not spared once the others go: without them it cannot
        answer. A request that slips in between is told in `because`.
        """
        late: list[str] = []

        def end(rank: int) -> StopReport:
            member = self._members[rank]
            try:
                return member.stop(hurry=hurry, force=force or rank > 0)
            except BusyError as error:
                if len(self._members) == 1:
                    raise
                late.append(f"a request came in while the members were stopping: {error.what}")
                return member.stop(hurry=hurry, force=True)

        with ThreadPoolExecutor(len(self._members)) as pool:
            ending = []
            for rank in reversed(range(len(self._members))):
                ending.append(pool.submit(end, rank))
                if rank:
                    time.sleep(_STAGGER_S)
            reports = [each.result() for each in ending]
        worst = min(reports, key=lambda report: _WORST.index(report.outcome))
        told = [*late, *(report.because for report in reports if report.because)]
        return StopReport(
            outcome=worst.outcome,
            signals=worst.signals,
            seconds=max(report.seconds for report in reports),
            exit_code=worst.exit_code,
            because="; ".join(told) or None,
        )

    def keep(self, command: Sequence[str]) -> None:
        """Of all, in rank order."""
        for member, words in zip(self._members, self._commands(command), strict=True):
            member.keep(words)

    def restore(self, *, force: bool = False) -> bool:
        """Stop them in reverse, then put each back in rank order; whether all serve again."""
        if not force:
            self.stop()
        served = [member.restore(force=True) for member in self._members]  # each, whatever the others say
        return all(served)

    def await_host(self, error: HostError) -> None:
        """Each host in turn."""
        for member in self._members:
            member.await_host(error)

    def commands(self) -> list[tuple[str, ...]]:
        """Of all."""
        return [line for member in self._members for line in member.commands()]

    def cpu(self) -> CpuSample | None:
        """None: they are on several hosts."""
        return self._members[0].cpu() if len(self._members) == 1 else None
