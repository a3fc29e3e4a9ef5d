"""Draftmark at work on a live unit: real systemd, sshd and server; `bench/unit_acceptance.py`, in small."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.llm_unit import UNIT, LlmLab, UnavailableError, llm_lab
from tests.lab.network import Cable, Cut
from tests.lab.unit_cuts import Cuts
from tests.lab.unit_cycles import cycle_faults, play_cycles
from tests.lab.unit_kills import Kills
from tests.lab.unit_reboot import reboots
from tests.lab.unit_refusals import refusals, second
from tests.lab.unit_runs import Phase

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab() -> Iterator[LlmLab]:
    pytest.importorskip("asyncssh")
    try:
        with llm_lab() as made:
            yield made
    except UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def ssh(lab: LlmLab) -> str:
    return f"root@127.0.0.1:{lab.ssh_port}"


def test_a_second_draftmark_is_refused_and_the_first_leaves_all_as_it_was(lab: LlmLab) -> None:
    assert [fault for played in second(lab, hosts=(None,)) for fault in played.faults] == []


def test_a_killed_controller_on_the_unit_s_own_host(lab: LlmLab, ssh: str) -> None:
    kills = Kills(lab, None, ssh, random.Random(1))
    killed = kills.kill(1, Phase("fresh", "measure", 1, 1.0), way="switch")
    assert killed.faults == (), killed.line
    assert killed.began_s is not None


def test_a_killed_controller_over_ssh_is_undone_by_restore(lab: LlmLab, ssh: str) -> None:
    kills = Kills(lab, ssh, None, random.Random(2))
    killed = kills.kill(1, Phase("fresh", "vacated", 1, 0.5), way="restore")
    assert killed.faults == (), killed.line


def test_a_cut_link(lab: LlmLab) -> None:
    try:
        with Cable() as cable:
            phase = Phase("fresh", "stop", 1, 0.3)
            cut = Cuts(lab, cable, random.Random(3)).cut(1, phase, Cut.SILENT, for_good=False)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert cut.faults == (), cut.line


def test_no_request_is_lost_by_a_stop(lab: LlmLab) -> None:
    before = lab.state()
    assert [fault for cycle in play_cycles(lab, 2, None, 4) for fault in cycle_faults(cycle)] == []
    assert lab.faults(before) == []


def test_what_is_refused_changes_nothing(lab: LlmLab, tmp_path: Path) -> None:
    names = {"no sudo, local", "/run full, local", "unknown host key", "nothing listens there"}
    played = list(refusals(lab, tmp_path, only=names))
    assert {each.name for each in played} == names
    assert [(each.name, fault) for each in played for fault in each.faults] == []


def test_a_reboot_in_the_middle_of_a_trial(lab: LlmLab) -> None:
    assert [fault for played in reboots(lab, 1) for fault in played.faults] == []


def test_another_admins_drop_in_ends_the_run_without_a_verdict(lab: LlmLab) -> None:
    before, mine = lab.state(), f"/etc/systemd/system/{UNIT}.d/over ride.conf"
    controller = lab.controller()
    assert controller.await_phase("measure", 2), controller.wait()
    lab.machine.write(mine, "[Service]\nEnvironment=FOO=1\n")
    ended = controller.wait()
    assert ended.status == 50, ended.err
    assert f"{mine} is new" in ended.err
    assert lab.machine.check(["cat", mine]) == "[Service]\nEnvironment=FOO=1\n"
    assert "FOO=1" in lab.machine.show(UNIT)["Environment"]
    reported = lab.machine.run([*lab.words("report")[:-1], str(controller.run).partition("root")[2], "--json"])
    result = json.loads(reported.out)
    assert (result["exit_status"], result["choice"]["recommended"], result["axes"]) == (50, None, [])
    assert result["altered"] == [f"{mine} is new"]
    assert result["verdict"].startswith("No verdict: somebody else changed")
    lab.machine.check(["sh", "-c", f"rm -r '{mine.rpartition('/')[0]}'; systemctl daemon-reload"])
    assert lab.faults(before) == []


def test_a_stop_by_another_admin_ends_the_run_and_stands(lab: LlmLab) -> None:
    before = lab.state()
    controller = lab.controller()
    assert controller.await_phase("measure", 2), controller.wait()
    lab.machine.check(["systemctl", "stop", UNIT])
    ended = controller.wait()
    assert ended.status == 30, ended.err
    assert f"somebody else has stopped {UNIT}: the run is ended, and it is left so" in ended.err
    assert lab.state().differences(before) == ["active: was 'inactive', is 'active'"]
    assert controller.actions().count("start") == 2
    lab.machine.check(["systemctl", "start", UNIT])
    assert lab.faults(before) == []
