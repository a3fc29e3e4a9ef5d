"""`python -m bench.unit_acceptance PART [N]`: live units are changed safely, seen in a lab with a real systemd.

The lab's unit runs the embedded engine; Draftmark works on it there, and from outside through a real sshd.

    tune          sweeps, local and over SSH; --keep and its undoing
    kill [60]     the controller is killed at N random points
    kill-keep [8] the same while something is to be kept
    cut [10]      the link is cut at N points for good, and at N/2 for some seconds
    reboot [2]    the host is rebooted in the middle of a trial
    cycles [100]  N stops and starts under load and with a foreign client
    two           a second Draftmark on the same unit
    refusals      no rights, no space, no systemd, no host

A line for each, and exit status 1 when one is not as it must be.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable

from tests.lab.llm_unit import LlmLab, UnavailableError, llm_lab
from tests.lab.unit_cuts import cuts
from tests.lab.unit_cycles import cycle_faults, play_cycles
from tests.lab.unit_kills import kills, table
from tests.lab.unit_reboot import reboots
from tests.lab.unit_refusals import both, refusals, second
from tests.lab.unit_tune import FULL, Played, keep, sweep


def _show(played: Iterable[Played]) -> int:
    wrong = 0
    for each in played:
        wrong += bool(each.faults)
        print(f"{each.name:34} {each.seconds:6.1f} s  {each.note}", flush=True)
        for fault in each.faults:
            print(f"    WRONG {fault}", flush=True)
    return wrong


def _tune(lab: LlmLab, count: int, seed: int) -> int:
    del seed
    hosts = (None, f"root@127.0.0.1:{lab.ssh_port}")
    found = (play for _ in range(count) for host in hosts for play in (sweep(lab, host, FULL), keep(lab, host)))
    return _show(found)


def _kill(lab: LlmLab, count: int, seed: int, only: str = "") -> int:
    found = []
    for each in kills(lab, count, seed, only):
        found.append(each)
        print(each.line, flush=True)
    print(table(found))
    return sum(bool(each.faults) for each in found)


def _cut(lab: LlmLab, count: int, seed: int) -> int:
    wrong = 0
    for each in cuts(lab, count, seed):
        wrong += bool(each.faults)
        print(each.line, flush=True)
    return wrong


def _reboot(lab: LlmLab, count: int, seed: int) -> int:
    return _show(reboots(lab, count, seed))


def _cycles(lab: LlmLab, count: int, seed: int) -> int:
    """Half of them on the unit's own host."""
    wrong = 0
    for host, share in ((None, count - count // 2), (f"root@127.0.0.1:{lab.ssh_port}", count // 2)):
        sent = answered = untaken = seen = 0
        for each in play_cycles(lab, share, host, seed):
            faults = cycle_faults(each)
            wrong += bool(faults)
            sent, answered, untaken = sent + each.sent, answered + each.answered, untaken + each.untaken
            seen += each.seen is not None
            print(f"{each}", *(f"    WRONG {fault}" for fault in faults), sep="\n", flush=True)
        print(f"{host or 'local'}: {share} cycles, foreign client seen in {seen}; its requests: {sent} reached the")
        print(f"    port, {answered} answered, {untaken} reset before the server had taken them", flush=True)
    return wrong


def _two(lab: LlmLab, count: int, seed: int) -> int:
    del seed
    return sum(_show(second(lab, both(lab))) for _ in range(count))


def _refusals(lab: LlmLab, count: int, seed: int) -> int:
    del seed
    return sum(_show(refusals(lab, lab.folder / f"refusals-{number}")) for number in range(count))


def _kill_keep(lab: LlmLab, count: int, seed: int) -> int:
    return _kill(lab, count, seed, "keep")


_PARTS: dict[str, tuple[Callable[[LlmLab, int, int], int], int]] = {
    "tune": (_tune, 1),
    "kill": (_kill, 60),
    "kill-keep": (_kill_keep, 8),
    "cut": (_cut, 10),
    "reboot": (_reboot, 2),
    "cycles": (_cycles, 100),
    "two": (_two, 1),
    "refusals": (_refusals, 1),
}


def main() -> int:
    """Play one part."""
    parser = argparse.ArgumentParser(prog="python -m bench.unit_acceptance", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("part", choices=tuple(_PARTS))
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    play, usual = _PARTS[options.part]
    began = time.monotonic()
    try:
        with llm_lab() as lab:
            wrong = play(lab, usual if options.count is None else options.count, options.seed)
    except UnavailableError as reason:
        print(f"no lab: {reason}")
        return 1
    print(f"{options.part}: {wrong} wrong, {time.monotonic() - began:.0f} s in all")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
