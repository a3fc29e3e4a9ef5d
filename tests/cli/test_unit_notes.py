"""What a run of a unit says beforehand of a unit that does not run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from draftmark.cli.unit_target import _notes


def member(**properties: str) -> Any:
    active = properties["ActiveState"] in ("active", "activating", "reloading")
    unit = SimpleNamespace(
        name="llm.service",
        active=active,
        files=(),
        properties=properties,
        command=SimpleNamespace(notes=()),
        triggers=(),
    )
    return SimpleNamespace(unit=unit, flags="unit:llm.service --host gpu1", safe=SimpleNamespace(because=()))


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ActiveState": "active", "Result": "success"}, []),
        (
            {"ActiveState": "inactive", "Result": "success"},
            ["llm.service does not run now (inactive): a run starts it and leaves it stopped"],
        ),
        (
            {"ActiveState": "failed", "Result": "signal"},
            [
                "llm.service does not run now (failed, Result=signal): a run starts it and leaves it stopped, and "
                "systemd then calls it inactive; draftmark why unit:llm.service --host gpu1 says why it failed"
            ],
        ),
    ],
)
def test_a_unit_that_does_not_run_is_left_so_and_that_is_said(properties: dict[str, str], said: list[str]) -> None:
    """A start makes systemd forget how the last run had ended: `failed` cannot be put back."""
    assert list(_notes(member(**properties))) == said
