"""Source names short enough to be read: without the folder that all files are in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from draftmark.model import Evidence
from draftmark.postmortem.model import Verdict


def with_short_names(verdict: Verdict) -> Verdict:
    """The verdict with files named from the folder they share; `examined` keeps the whole names."""
    folder = _shared_folder({item.file for item in _evidence(verdict)})
    if not folder:
        return verdict

    def short(item: Evidence) -> Evidence:
        return replace(item, file=item.file.removeprefix(folder))

    return replace(
        verdict,
        evidence=tuple(map(short, verdict.evidence)),
        ruled_out=tuple(replace(item, evidence=tuple(map(short, item.evidence))) for item in verdict.ruled_out),
        consequences=tuple(replace(item, evidence=short(item.evidence)) for item in verdict.consequences),
        timeline=tuple(replace(item, evidence=short(item.evidence)) for item in verdict.timeline),
    )


def _evidence(verdict: Verdict) -> Iterator[Evidence]:
    yield from verdict.evidence
    for refuted in verdict.ruled_out:
        yield from refuted.evidence
    yield from (item.evidence for item in verdict.consequences)
    yield from (item.evidence for item in verdict.timeline)


def _shared_folder(names: set[str]) -> str:
    """`/var/log/llm/`; empty when they share none. Names that are no paths (`kernel log`) do not count."""
    folders = [name.split("/")[:-1] for name in names if "/" in name]
    if not folders:
        return ""
    shared = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}/" for part in shared)
