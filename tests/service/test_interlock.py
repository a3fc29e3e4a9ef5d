"""The founding mistake, a service stopped under a running measurement: no way that the code offers leads to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from draftmark.errors import MeasuringError
from draftmark.service.command import CommandSupervisor
from draftmark.service.interlock import Interlock
from draftmark.testing import programs

WAYS: dict[str, Callable[[CommandSupervisor, Path], object]] = {
    "stop": lambda s, _log: s.stop(),
    "stop in a hurry": lambda s, _log: s.stop(hurry=True),
    "forced stop": lambda s, _log: s.stop(force=True),
    "restore": lambda s, _log: s.restore(),
    "forced restore": lambda s, _log: s.restore(force=True),
    "another start": lambda s, log: s.start(s.original, log),
    "leaving the context": lambda s, _log: s.__exit__(None, None, None),
    "leaving it by an error": lambda s, _log: s.__exit__(ValueError, ValueError(), None),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_command_is_not_stopped_under_a_measurement(way: str, tmp_path: Path) -> None:
    with CommandSupervisor(programs.command("serve", f"interlock-{way.replace(' ', '-')}")) as supervisor:
        before = supervisor.start(supervisor.original, tmp_path / "server.log")
        with supervisor.measuring():
            with pytest.raises(MeasuringError, match="a measurement runs"):
                WAYS[way](supervisor, tmp_path / "server.log")
            assert supervisor.identity() == before
        assert supervisor.stop().signals


def test_a_measurement_is_over_however_it_ends() -> None:
    interlock = Interlock()
    with pytest.raises(KeyboardInterrupt), interlock.measuring():
        raise KeyboardInterrupt
    interlock.check("a stop")


def test_two_measurements_at_once_are_two() -> None:
    interlock = Interlock()
    with interlock.measuring():
        with interlock.measuring():
            pass
        with pytest.raises(MeasuringError):
            interlock.check("a stop")
    interlock.check("a stop")
