"""Reading single figures out of a Prometheus exposition. Pure."""

from __future__ import annotations

import re


def by_label(text: str, name: str, label: str, most: int) -> tuple[float, ...]:
    """One metric's samples by a label that counts from 0: as many as there are without a gap, at most `most`."""
    wanted = re.compile(re.escape(name) + r"\{[^}]*\b" + re.escape(label) + r'="(\d{1,6})"[^}]*\}\s+(\S+)')
    found: dict[int, float] = {}
    for line in text.splitlines():
        if (sample := wanted.match(line)) is None:
            continue
        try:
            value = float(sample[2])
        except ValueError:
            continue
        found[int(sample[1])] = found.get(int(sample[1]), 0.0) + value
    known = 0
    while known in found and known < most:
        known += 1
    return tuple(found[place] for place in range(known))


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
