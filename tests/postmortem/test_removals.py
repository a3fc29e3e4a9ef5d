"""Without the decisive lines a verdict gets weaker; it never becomes another cause that is called certain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from draftmark.model import Evidence
from draftmark.postmortem.model import Confidence, Verdict

from .corpus import CORPUS, Case, judged, load
from .invariance import REMOVALS, Removal, removals, removed

here = pytest.mark.skipif(not CORPUS.exists(), reason="no labelled cases at ../shared/corpus")


@cache  # no fixture: a fixture's work is traced, whatever its tests are marked with
def rows() -> tuple[Removal, ...]:
    from draftmark.cli.why import examine_paths

    return tuple(removals(examine_paths, load()))


@pytest.mark.no_cover
@here
@pytest.mark.parametrize("name", REMOVALS)
def test_nothing_else_is_certain_without_the_decisive_lines(name: str) -> None:
    assert len(rows()) == len(REMOVALS) * len(load())
    bad = [
        f"{r.case}: {r.before} → {r.cause} ({r.confidence})" for r in rows() if r.removal == name and not r.allowed
    ]
    assert not bad


CASE = Case(
    "one", {"service.log": b"a\nout of files\nb\n"}, {"cause": "fd-limit", "key_evidence": ["out of files"]}
)


def judge_of(words: dict[str, Verdict], otherwise: Verdict) -> object:
    """A judge of single words: what it says when one of them is in the log."""

    def judge(paths: Sequence[str]) -> Verdict:
        text = "".join(Path(p).read_text() for p in paths)
        return next((verdict for word, verdict in words.items() if word in text), otherwise)

    return judge


def say(cause: str, confidence: Confidence) -> Verdict:
    proof = Evidence(file="service.log", line=2, time=None, text="out of files")
    return Verdict(cause=cause, confidence=confidence, summary="", phase=None, evidence=(proof,))


@pytest.mark.parametrize(
    ("left", "allowed"),
    [
        (say("unsettled", Confidence.UNSETTLED), True),
        (say("fd-limit", Confidence.LIKELY), True),
        (say("fd-limit", Confidence.CERTAIN), False),
        (say("disk-full", Confidence.LIKELY), True),
        (say("disk-full", Confidence.CERTAIN), False),
        (say("healthy-running", Confidence.CERTAIN), False),
    ],
)
@pytest.mark.parametrize("name", REMOVALS)
def test_what_may_be_left(name: str, left: Verdict, allowed: bool) -> None:
    whole = say("fd-limit", Confidence.LIKELY)
    judge = judge_of({"out of files": whole}, left)
    row = removed(judge, CASE, judged(judge, CASE.files), name)  # type: ignore[arg-type]
    assert row.allowed is allowed
