"""Files named from the folder they share."""

from __future__ import annotations

from dataclasses import replace

from draftmark.model import Evidence
from draftmark.postmortem.model import Verdict
from draftmark.report.why_names import with_short_names
from draftmark.testing import verdicts


def named(*names: str) -> Verdict:
    proofs = tuple(Evidence(file=name, line=1, time=None, text="x") for name in names)
    return replace(
        verdicts.stop_timeout(), evidence=proofs, ruled_out=(), consequences=(), timeline=(), examined=names
    )


def shown(*names: str) -> list[str]:
    return [item.file for item in with_short_names(named(*names)).evidence]


def test_the_shared_folder_goes() -> None:
    assert shown("/var/log/a/x.log", "/var/log/b/x.log") == ["a/x.log", "b/x.log"]
    assert shown("/var/log/x.log") == ["x.log"]
    assert shown("logs/x.tar:n1/s.log", "logs/y.tar:s.log") == ["x.tar:n1/s.log", "y.tar:s.log"]


def test_names_that_are_no_paths_stay() -> None:
    assert shown("/a/x.log", "kernel log", "journal of llm.service") == [
        "x.log",
        "kernel log",
        "journal of llm.service",
    ]
    assert shown("x.log", "y.log") == ["x.log", "y.log"]
    assert shown("/a/x.log", "b/x.log") == ["/a/x.log", "b/x.log"]


def test_whole_names_are_kept_where_the_sources_are_listed() -> None:
    assert with_short_names(named("/var/log/x.log")).examined == ("/var/log/x.log",)


def test_every_place_is_shortened() -> None:
    short = with_short_names(verdicts.everywhere("/var/log/x.log"))
    files = [item.file for item in short.evidence + short.ruled_out[0].evidence]
    files += [item.evidence.file for item in short.consequences] + [item.evidence.file for item in short.timeline]
    assert set(files) == {"x.log"}
