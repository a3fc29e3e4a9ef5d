"""The verdict as the JSON document of the contract (`draftmark.why/1`)."""

from __future__ import annotations

from typing import Any

import msgspec

from draftmark.postmortem.model import Verdict

SCHEMA = "draftmark.why/1"


def document(verdict: Verdict) -> dict[str, Any]:
    """Plain values, `schema` first; unknown ones are None."""
    return {"schema": SCHEMA, **msgspec.to_builtins(verdict)}
