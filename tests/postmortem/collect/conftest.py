"""A reader that keeps every line, so that a test sees what was collected."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from draftmark.postmortem.collect.gathering import Reader
from draftmark.postmortem.model import Kind, Line, Source


def read_all(name: str, data: bytes | Iterable[bytes]) -> Source:
    raw = data if isinstance(data, bytes) else b"".join(data)
    lines = raw.decode("utf-8", "replace").splitlines()
    kept = tuple(Line(name, number, text, text) for number, text in enumerate(lines, 1))
    return Source(name, Kind.LOG, kept, len(kept), len(raw))


@pytest.fixture
def read() -> Reader:
    return read_all
