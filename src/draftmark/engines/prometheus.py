"""Reading single figures out of a Prometheus exposition. Pure."""

from __future__ import annotations


def total(text: str, name: str) -> float | None:
    """Sum of all samples of one metric over its labels; None when it is not there."""
    found: float | None = None
    for line in text.splitlines():
        if not line.startswith(name):
            continue
        rest = line[len(name) :]
        if rest[:1] not in (" ", "{"):
            continue
        try:
            value = float(rest.rpartition("}")[2].split()[0])
        except (IndexError, ValueError):
            continue
        found = value if found is None else found + value
    return found
