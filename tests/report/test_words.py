"""What a finished run is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from draftmark.report.reading import read_result
from draftmark.report.words import outcome, restored

KEPT: dict[str, Any] = {"service": "unit:llm.service", "exit_status": 10, "restored": False, "kept": "d4"}


@pytest.mark.parametrize(
    ("changes", "said", "afterwards"),
    [
        ({}, "Better configuration found and kept", "depth 4 kept"),
        ({"kept": "d99"}, "Better configuration found and kept", "d99 kept"),
        ({"kept": None}, "Better configuration found, not kept", "original not restored"),
        ({"kept": None, "restored": True}, "Better configuration found, not kept", "original restored"),
        ({"kept": None, "restored": None}, "Better configuration found, not kept", "restored: not recorded"),
    ],
)
def test_what_became_of_the_service(
    load: Callable[[str], dict[str, Any]], changes: dict[str, Any], said: str, afterwards: str
) -> None:
    view = read_result(load("eleven") | KEPT | changes)
    assert outcome(view) == said
    assert restored(view) == afterwards
