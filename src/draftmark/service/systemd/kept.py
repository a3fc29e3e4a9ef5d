"""What a kept drop-in stands in for, so that a later change of it does not go unseen: it would have no effect."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from draftmark.service.systemd.dropin import TRIAL, parse_header
from draftmark.service.systemd.unitfile import Assignment, Unit, UnitFile

KEPT = "zz-draftmark.conf"
"""Name of the drop-in that `--keep` leaves."""
_DIGITS = 16
_MARK = re.compile(rf"It stands in for the ExecStart= with sha256 ([0-9a-f]{{{_DIGITS}}})")


def mark(files: Sequence[UnitFile]) -> str:
    """A line of the kept drop-in's head, by which `outdated` knows.

    Args:
        files: The unit's fragment and drop-ins, in systemd's order, before it is written.
    """
    return f"It stands in for the ExecStart= with sha256 {_sum(_own(files))}."


def outdated(files: Sequence[UnitFile]) -> Assignment | None:
    """The unit's own ExecStart=, where it is another than when the drop-in that is among the files was kept."""
    kept = next((file for file in files if PurePosixPath(file.path).name == KEPT), None)
    said = _MARK.search("\n".join(parse_header(kept.text))) if kept else None
    own = _own(files)
    if said is None or not own or said[1] == _sum(own):
        return None
    return own[-1]


def _own(files: Sequence[UnitFile]) -> tuple[Assignment, ...]:
    """Without what Draftmark has written."""
    return Unit.parse([f for f in files if PurePosixPath(f.path).name not in (KEPT, TRIAL)]).all("ExecStart")


def _sum(lines: Sequence[Assignment]) -> str:
    text = "\n".join(line.value for line in lines)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
