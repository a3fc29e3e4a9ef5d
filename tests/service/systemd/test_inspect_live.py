"""`draftmark inspect` as it is typed, on the host of a real unit that is held."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.lab.machine import Machine
from tests.lab.root import CHECKOUT

from draftmark.service.systemd.lease import Lease

from .lab_host import LabHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAME = "inspected.service"
PROGRAM = "/opt/bin/llama-server"
DRAFTMARK = ("env", "COLUMNS=200", f"PYTHONPATH={CHECKOUT / 'src'}", sys.executable, "-m", "draftmark")
FILE = f"/etc/systemd/system/{NAME}"


@pytest.fixture
def inspect(lab: Machine) -> Iterator[Callable[..., str]]:
    lab.write(PROGRAM, "#!/bin/sh\nexec sleep 600\n")
    lab.write(FILE, f"[Service]\nRestart=always\nExecStart={PROGRAM} -m /opt/x.gguf --port 9 --metrics\n")
    lab.check(["sh", "-c", f"chmod +x {PROGRAM}; systemctl daemon-reload; systemctl start {NAME}"])

    def typed(verb: str, *words: str) -> str:
        return lab.check([*DRAFTMARK, verb, f"unit:{NAME}", *words])

    yield typed
    lab.check(["sh", "-c", f"systemctl stop {NAME}; rm -rf {FILE} /opt/bin; systemctl daemon-reload"])


def hazards(text: str) -> dict[str, Any]:
    return {hazard["code"]: hazard for hazard in json.loads(text)["hazards"]}


def test_who_holds_it_is_told_and_that_a_trial_is_in_force(lab: Machine, inspect: Callable[..., str]) -> None:
    before = inspect("inspect")
    assert "held" not in before
    assert before.count("/opt/x.gguf") == 2  # the line, and the model among the flags
    assert "notes" not in before
    assert "load: requests are sent from this computer" in before
    lease = Lease.open(LabHost(lab), NAME)
    lease.edit(f"[Service]\nExecStart=\nExecStart={PROGRAM} -m /opt/x.gguf --port 9 --metrics --draft-max 4\n")
    with lease.measuring():
        document = inspect("inspect", "--json")
        held = hazards(document)["held"]
        assert f"pid {os.getpid()}" in held["evidence"][0]
        assert "is in force" in held["evidence"][1]
        assert held["evidence"][2].startswith("measuring since 2")
        assert json.loads(document)["held"]["trial"].endswith("zz-draftmark.trial.conf")
        assert "hazard: a Draftmark is at work on the unit" in inspect("inspect")
        bench = lab.run([*DRAFTMARK, "bench", f"unit:{NAME}"])
        assert bench.status == 30, bench.err
        assert f"pid {os.getpid()}" in bench.err
    lease.restore()
    assert "held" not in hazards(inspect("inspect", "--json"))


def test_plan_shows_what_the_baseline_sets(inspect: Callable[..., str]) -> None:
    told = inspect("plan", "--depth", "off,4")
    off, other = told.index("drop-in of off"), told.index("drop-in of depth 4")
    assert "Restart=no" in told[off:other]
    assert "Restart=no" in told[other:]
    assert told.count("load: requests are sent from") == 1


def test_a_socket_that_starts_the_unit_is_told_and_nothing_is_tuned(
    lab: Machine, inspect: Callable[..., str]
) -> None:
    """Also one of a proxy in front that needs it; one that nobody has started is told, and in nobody's way."""
    socket, front = f"{FILE.removesuffix('.service')}.socket", "/etc/systemd/system/front.socket"
    lab.write(socket, f"[Socket]\nListenStream=/run/{NAME}.sock\n")
    lab.write(front, "[Socket]\nListenStream=/run/front.sock\n")
    lab.write("/etc/systemd/system/front.service", f"[Unit]\nRequires={NAME}\n[Service]\nExecStart=/bin/sleep 9\n")
    invocation = lab.show(NAME)["InvocationID"]
    try:
        lab.check(["systemctl", "daemon-reload"])
        assert hazards(inspect("inspect", "--json"))["started-by-others"]["severity"] == "warning"
        assert "tune would be refused" not in inspect("plan", "--depth", "off,4")
        lab.check(["systemctl", "start", "front.socket"])
        assert "front.socket starts front.service, which needs" in inspect("plan", "--depth", "off,4")
        found = json.loads(inspect("inspect", "--json"))["hazards"]
        told = next(each for each in found if each["code"] == "started-by-others")
        assert told["severity"] == "stops-tuning"
        assert "Listen=/run/front.sock" in told["evidence"]
        ended = lab.run([*DRAFTMARK, "tune", f"unit:{NAME}", "--depth", "off,4", "--run", "/tmp/never"])
        assert ended.status == 30, ended.err
        assert "next: systemctl stop front.socket, tune, systemctl start front.socket" in ended.err
        assert lab.show(NAME)["InvocationID"] == invocation
        assert lab.run(["ls", "/run/draftmark", "/tmp/never"]).out == ""
    finally:
        lab.check(["sh", "-c", f"systemctl stop front.socket; rm {socket} /etc/systemd/system/front.*"])
