"""`draftmark why` as it is typed, on a real unit that systemd or its user has started again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.lab.kills import kill_main

from .lab_host import LiveUnit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def why(unit: LiveUnit) -> dict[str, Any]:
    ended = unit.machine.run([sys.executable, "-m", "draftmark", "why", f"unit:{unit.name}", "--json"])
    assert ended.status in (0, 40), ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_a_killed_unit_runs_again_and_a_restarted_one_is_well(make_unit: Callable[..., LiveUnit]) -> None:
    unit = make_unit(settings="Restart=always\nRestartSec=0\n")
    kill_main(unit.machine, unit.name)
    unit.await_depth(0)
    killed = why(unit)
    assert not killed["cause"].startswith("healthy")
    assert killed["afterwards"].startswith("runs again since 20")
    unit.machine.check(["systemctl", "restart", unit.name])
    unit.await_depth(0)
    assert why(unit)["cause"] == "healthy-running"
