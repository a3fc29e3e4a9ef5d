"""Whatever was handed over → sources of lines: opening, scanning in one pass, prefixes, kinds."""

from draftmark.postmortem.intake.limits import Hints, Intake, Limits
from draftmark.postmortem.intake.opening import read_bytes, read_paths

__all__ = ["Hints", "Intake", "Limits", "read_bytes", "read_paths"]
