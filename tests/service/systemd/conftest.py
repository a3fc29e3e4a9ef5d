"""One lab for the live tests of this folder, and a unit in it that is new for each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.lab.machine import Machine, Mode
from tests.lab.packages import UnavailableError

from draftmark.service.host import free_port

from .lab_host import SERVER, LiveUnit

_numbers = count(1)


@pytest.fixture(scope="session")
def lab() -> Iterator[Machine]:
    try:
        machine = Machine.boot(Mode.SHARED)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield machine
    machine.close()


@pytest.fixture
def make_unit(lab: Machine) -> Iterator[Callable[..., LiveUnit]]:
    """`make_unit(name, flags, settings)`: a unit that runs the counting server; it is removed afterwards."""
    made = []

    def make(name: str = "", flags: str = "", settings: str = "", *, active: bool = True) -> LiveUnit:
        port = free_port()
        command = f"{sys.executable} {SERVER} --port {port} --depth 0 {flags}".strip()
        unit = LiveUnit(lab, name or f"llm{next(_numbers)}.service", port, command)
        unit.install(settings, active=active)
        made.append(unit)
        return unit

    yield make
    for unit in made:
        unit.remove()


@pytest.fixture
def unit(make_unit: Callable[..., LiveUnit]) -> LiveUnit:
    """An active one."""
    return make_unit()
