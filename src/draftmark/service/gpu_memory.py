"""GPU memory that a stopped server still holds: the next start would find it taken, and die of it.

A killed process's memory comes back late: tens of seconds where much host memory is pinned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from draftmark.ports import Clock, Host

_QUERY = ("nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
_QUERY_S = 15.0
_LOOK_S = 0.5
_SLACK_MIB = 64  # what a driver keeps or other small users take and give


def used_mib(host: Host) -> dict[int, int] | None:
    """MiB in use per GPU; None where there is none, or nvidia-smi does not say."""
    ended = host.run(_QUERY, timeout_s=_QUERY_S)
    if not ended.ok:
        return None
    found: dict[int, int] = {}
    for line in ended.stdout.decode("ascii", "replace").splitlines():
        index, _, used = (part.strip() for part in line.partition(","))
        if not (index.isdecimal() and used.isdecimal()):
            return None  # `[N/A]`, as on unified memory
        found[int(index)] = int(used)
    return found or None


@dataclass(slots=True)
class GpuMemory:
    """Waits until what a server held is free again.

    Attributes:
        patience_s: Longest wait.
    """

    host: Host
    clock: Clock
    patience_s: float = 120.0
    _floor: dict[int, int] = field(default_factory=dict, repr=False)

    def settle(self, on_wait: Callable[[str, float | None], None]) -> str | None:
        """After a stop: wait for the least that was ever in use after one, or for a standstill the first time.

        Returns:
            What is still taken when the patience is over, in words; None when all is free.
        """
        deadline = self.clock.monotonic() + self.patience_s
        before = used_mib(self.host)
        if before is None:
            return None
        while True:
            self.clock.sleep(_LOOK_S)
            now = used_mib(self.host)
            if now is None:
                return None
            more = {
                gpu: mib - self._floor[gpu]
                for gpu, mib in now.items()
                if mib > self._floor.get(gpu, mib) + _SLACK_MIB
            }
            if not more and now == before:
                self._floor = {gpu: min(mib, self._floor.get(gpu, mib)) for gpu, mib in now.items()}
                return None
            left = deadline - self.clock.monotonic()
            if left <= 0:
                return _words(more) if more else None
            on_wait("waiting for GPU memory to be free again", left)
            before = now


def _words(more: dict[int, int]) -> str:
    return ", ".join(f"{mib} MiB of GPU {gpu} are still taken" for gpu, mib in sorted(more.items()))
