"""The unit's host loses its power in the middle of a trial, and boots again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from .llm_unit import UNIT, LlmLab
from .unit_runs import Scripts
from .unit_tune import Played, where

_PHASES = ("measure", "start", "stop", "ready", "begin")


def reboots(lab: LlmLab, count: int, seed: int = 1) -> Iterator[Played]:
    """Half of them with the controller on that host, half over SSH; the unit is enabled, as services are."""
    chance = random.Random(seed)
    lab.machine.check(["systemctl", "add-wants", "lab.target", UNIT])
    ssh = f"root@127.0.0.1:{lab.ssh_port}"
    for number in range(count):
        yield _reboot(lab, (None, ssh)[number % 2], _PHASES[number // 2 % len(_PHASES)], chance)


def _reboot(lab: LlmLab, host: str | None, phase: str, chance: random.Random) -> Played:
    before = lab.state()
    trial = 2 if phase in ("measure", "start", "ready") else 1  # the second arm has a command line of its own
    controller = Scripts(lab, host).begin("fresh")
    assert controller.await_phase(phase, trial), controller.wait()
    time.sleep(chance.uniform(0.0, 1.0))
    held, running = lab.held(), _drop_in(lab)
    began = time.monotonic()
    lab.machine.reboot()
    lab.run_sshd()
    faults = [] if held else ["it was not held when the power went"]
    lab.await_ready()
    up = time.monotonic() - began
    ended = controller.wait(200)
    if host is not None:
        if ended.status not in (50, 51) or "Traceback" in ended.err:
            faults.append(f"exit status {ended.status}: {ended.err[-800:]}")
        if lab.invocation() == "":
            faults.append("the unit has no invocation")
    faults += lab.faults(before)
    told = ended.err[ended.err.find("error") :].strip() if host is not None else ""
    note = "\n".join(
        (f"drop-in {'in force' * running or 'not yet'}, up with its original command after {up:.1f} s", told)
    )
    return Played(f"reboot in {phase}, {where(host)}", time.monotonic() - began, note, tuple(faults))


def _drop_in(lab: LlmLab) -> bool:
    return lab.root(f"/run/systemd/system/{UNIT}.d/zz-draftmark.trial.conf").exists()
