"""The example documents, a fresh copy each time, so that a test may bend them."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

DATA = Path(__file__).parent / "data"
STEMS = ("normal", "inconclusive", "eleven", "unmeasured")

# Ends a script element, starts a comment, closes an attribute, drives a terminal, reorders a line, splits a line,
# splits a table row, is rich markup, mentions somebody.
HOSTILE = (
    "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\"'&|`\x1b[2J\u202e\u2028[red]@all\n## x"
)


@cache
def _loaded(stem: str) -> Any:
    return json.loads((DATA / f"{stem}.json").read_text(encoding="utf-8"))


@pytest.fixture
def load() -> Callable[[str], dict[str, Any]]:
    return lambda stem: copy.deepcopy(_loaded(stem))


@pytest.fixture(params=STEMS)
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each of the four examples in turn."""
    return copy.deepcopy(_loaded(request.param))


@pytest.fixture
def hostile(load: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """A complete result in which every text that may come from elsewhere is an attack."""
    result = load("eleven")
    result["service"] = result["verdict"] = result["draftmark"] = HOSTILE
    result["engine"] = {"name": HOSTILE, "version": HOSTILE, "command": ["python3", HOSTILE]}
    result["host"] = {HOSTILE: HOSTILE}
    result["warnings"] = [HOSTILE]
    for arm in result["arms"]:
        arm["label"] = f"{HOSTILE} {arm['depth']}"
        arm["because"] = arm["why"] = HOSTILE
    for axis in result["axes"]:
        axis["because"] = axis["verdict"] = HOSTILE
    for trial in result["trials"]:
        trial["because"] = trial["stop"] = HOSTILE
        trial["disturbed"] = [HOSTILE]
        line = {"file": HOSTILE, "line": 1, "time": HOSTILE, "text": HOSTILE}
        trial["why"] = dict.fromkeys(("path", "cause", "confidence", "summary"), HOSTILE) | {"evidence": line}
    for workload in result["workloads"]:
        workload["about"] = workload["source"] = workload["sha256"] = HOSTILE
    result["choice"]["because"] = HOSTILE
    return result


class Screen:
    """A console that remembers what was printed."""

    def __init__(self, width: int = 80, *, terminal: bool = False, encoding: str = "utf-8") -> None:
        self.bytes = io.BytesIO()
        stream = io.TextIOWrapper(self.bytes, encoding=encoding, errors="strict", write_through=True)
        self.console = Console(file=stream, width=width, force_terminal=terminal, _environ={"NO_COLOR": "1"})
        self.encoding = encoding

    @property
    def text(self) -> str:
        return self.bytes.getvalue().decode(self.encoding)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def flat(self) -> str:
        """Everything on one line, so that a test need not know where lines were wrapped."""
        return " ".join(self.text.split())


@pytest.fixture
def screen() -> type[Screen]:
    return Screen
