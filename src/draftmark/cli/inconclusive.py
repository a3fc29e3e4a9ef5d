"""What to do next where a run has settled nothing."""

from __future__ import annotations

import shlex
from typing import Any

_QUIETER = "a quieter host, more rounds (--rounds), or more and longer answers (--requests, --max-tokens)"


def next_step(result: dict[str, Any], run: str) -> str:
    """One line. A quieter host does not bring an arm to life that died.

    Args:
        result: The result document, of exit status 40.
        run: The run directory, as the user sees it.
    """
    others = [arm for arm in result["arms"] if arm["arm"] != result["baseline"]["arm"]]
    dead = [arm for arm in others if arm["status"] == "did-not-start" or (arm["status"] == "void" and arm["why"])]
    if not dead or any(arm["status"] == "measured" for arm in others):
        return f"next: {_QUIETER}"
    names = ", ".join(arm["label"] for arm in dead)
    see = " ".join(shlex.quote(f"{run}/{arm['why'] or _log(arm)}") for arm in dead)
    return f"next: see why {names} ended: {see}; mend that, or name other depths (--depth), and run it again"


def _log(arm: dict[str, Any]) -> str:
    """Of its last trial, where there is no post-mortem."""
    last = max(arm["trials"])
    return f"trials/{last:02d}-{arm['arm']}/server.log"
