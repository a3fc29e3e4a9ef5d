"""Paths → sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from draftmark.errors import BadInputError
from draftmark.postmortem.intake.limits import Hints, Intake, Limits
from draftmark.postmortem.intake.sources import Raw, raw_source, read_sources
from draftmark.postmortem.model import Source


def read_bytes(name: str, data: bytes | Iterable[bytes], *, hints: Hints, limits: Limits = Limits()) -> Source:  # noqa: B008 - frozen
    """One source from its bytes."""
    blocks = (data,) if isinstance(data, bytes) else data
    return read_sources([raw_source(name, blocks, hints, limits)], hints, limits)[0]


def read_paths(
    paths: Sequence[str],
    *,
    hints: Hints,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    stdin: BinaryIO | None = None,
) -> Intake:
    """Files, folders, `-`."""
    raws: list[Raw] = []
    for path in paths:
        if path == "-" and stdin is not None:
            raws.append(raw_source("stdin", (stdin.read(),), hints, limits))
            continue
        top = Path(path)
        if not top.exists():
            raise BadInputError(f"{path} does not exist.")
        files = sorted(p for p in top.rglob("*") if p.is_file()) if top.is_dir() else [top]
        raws.extend(raw_source(str(file), (file.read_bytes(),), hints, limits) for file in files)
    return Intake(read_sources(raws, hints, limits))
