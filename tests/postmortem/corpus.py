"""Labelled deaths, and how an answer to one is scored.

A case is a folder with the evidence an operator would have had, and `label.json`. The definitions of the scores are
those of the corpus' own README ("How to score"); any folder of cases in that format can be scored.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmark.model import Evidence
from draftmark.postmortem.model import Verdict

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
CORPUS = SHARED / "corpus"
CAPTURES = SHARED / "captures"

Examine = Callable[[Sequence[str]], Verdict]
Files = Mapping[str, bytes]

UNSETTLED = "unsettled"
MEMORY = frozenset(
    {
        *("host-ram-oom-kernel", "cgroup-oom", "container-oomkilled", "systemd-oomd", "earlyoom"),
        *("ray-memory-monitor-kill", "host-ram-alloc-failure", "host-ram-exhaustion-stall"),
    }
)

# The least that is accepted: 68 of 70 cases, and the shares of the contract.
LEAST_TOP1 = 68 / 70
LEAST_EVIDENCE = 0.95


def is_memory(cause: str | None) -> bool:
    """Whether the cause says that memory ran out: naming one falsely is the worst miss."""
    return cause is not None and (cause in MEMORY or cause.startswith("cuda-oom-"))


@dataclass(frozen=True)
class Case:
    """One labelled folder; `files` leaves the label out."""

    name: str
    files: Files
    label: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accepted(self) -> frozenset[str]:
        """The causes that are right: the label's, and the root behind it."""
        return frozenset(filter(None, (self.label.get("cause"), self.label.get("root_cause"))))

    @property
    def keys(self) -> tuple[str, ...]:
        """Substrings of the lines that a right answer should cite."""
        return tuple(self.label.get("key_evidence") or ())


def load(folder: Path = CORPUS) -> tuple[Case, ...]:
    """All cases below `folder`, by name."""
    cases = []
    for path in sorted(folder.glob("*/label.json")):
        files = {p.name: p.read_bytes() for p in sorted(path.parent.iterdir()) if p.is_file() and p != path}
        cases.append(Case(path.parent.name, files, json.loads(path.read_text())))
    return tuple(cases)


@contextmanager
def laid_out(files: Files, order: Sequence[str] | None = None) -> Iterator[list[str]]:
    """The files in a folder whose name says nothing; their paths, in `order` (by name when not given)."""
    with tempfile.TemporaryDirectory(prefix="evidence-") as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        yield [str(Path(scratch) / name) for name in order or sorted(files)]


def judged(examine: Examine, files: Files, order: Sequence[str] | None = None) -> Verdict:
    """The verdict on files that lie nowhere yet."""
    with laid_out(files, order) as paths:
        return examine(paths)


def cited_line(evidence: Evidence, files: Files) -> tuple[str, str] | None:
    """Name of the file and the line as it stands there; None when there is no such line.

    `Evidence.file` may be a path: what counts is that its last part, or all of it, names one of the files.
    """
    name = evidence.file if evidence.file in files else evidence.file.rsplit("/", 1)[-1]
    if name not in files or evidence.line is None:
        return None
    lines = files[name].split(b"\n")
    if not 1 <= evidence.line <= len(lines):
        return None
    return name, lines[evidence.line - 1].decode("utf-8", "replace")


def cites(verdict: Verdict, case: Case) -> bool:
    """Whether a cited line is one of the decisive ones: its text, and its place in the file."""
    for evidence in verdict.evidence:
        there = cited_line(evidence, case.files)
        if there and any(key in there[1] and key in evidence.text for key in case.keys):
            return True
    return False


@dataclass(frozen=True)
class Answer:
    """What was answered to one case, measured against its label."""

    case: Case
    cause: str
    confidence: str
    phase: str | None
    engine: str | None
    evidence: bool
    cited: tuple[str, ...]
    seconds: float
    error: str | None = None

    @property
    def right(self) -> bool:
        """The cause or the root behind it."""
        return self.cause in self.case.accepted

    @property
    def unsettled(self) -> bool:
        """No cause was named where there is one: a miss, but not a wrong claim."""
        return self.cause == UNSETTLED and not self.right

    @property
    def wrong(self) -> bool:
        """Another cause was named, or there was no answer."""
        return not self.right and not self.unsettled

    @property
    def false_memory(self) -> bool:
        """A memory cause where the label has none."""
        return is_memory(self.cause) and not any(map(is_memory, self.case.accepted))

    @property
    def missed_memory(self) -> bool:
        """A memory cause answered with another cause."""
        return is_memory(self.case.label.get("cause")) and self.wrong

    @property
    def hasty(self) -> bool:
        """A cause that the label warns of."""
        return self.cause in (self.case.label.get("not") or ())


def answer(examine: Examine, case: Case) -> Answer:
    """Hands the case over, all but its label. A failure to answer is an answer, and a wrong one."""
    started = time.perf_counter()
    try:
        verdict = judged(examine, case.files)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        return Answer(case, "", "", None, None, False, (), time.perf_counter() - started, said)
    seconds = time.perf_counter() - started
    cited = tuple(f"{e.file.rsplit('/', 1)[-1]}:{e.line} {e.text}" for e in verdict.evidence)
    return Answer(
        case,
        verdict.cause,
        str(verdict.confidence),
        verdict.phase and str(verdict.phase),
        verdict.engine,
        cites(verdict, case),
        cited,
        seconds,
    )


@dataclass(frozen=True)
class Tally:
    """The counts over some answers."""

    cases: int
    right: int
    wrong: int
    unsettled: int
    false_memory: int
    missed_memory: int
    hasty: int
    evidence: int

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> Tally:
        """Counts them."""
        rows = list(answers)
        return cls(
            len(rows),
            sum(a.right for a in rows),
            sum(a.wrong for a in rows),
            sum(a.unsettled for a in rows),
            sum(a.false_memory for a in rows),
            sum(a.missed_memory for a in rows),
            sum(a.hasty for a in rows),
            sum(a.evidence for a in rows),
        )

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """What keeps the counts from being accepted, in words; empty when they are."""
        found = []
        if not self.cases:
            return ("no case was found",)
        if self.right < LEAST_TOP1 * self.cases - 1e-9:
            found.append(f"{self.right} of {self.cases} causes are right, at least {LEAST_TOP1:.1%} must be")
        if self.false_memory:
            found.append(f"{self.false_memory} answers name a memory cause where there is none")
        if self.evidence < LEAST_EVIDENCE * self.cases:
            found.append(
                f"{self.evidence} of {self.cases} cite the decisive line, at least {LEAST_EVIDENCE:.0%} must"
            )
        return tuple(found)
