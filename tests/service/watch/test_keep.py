"""Reports on disk: whole, named, few."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.service.watch import keep

FORMS = {"json": b"{}", "md": b"#", "html": b"<p>"}
AT = 1_796_000_000.25


def test_names_say_when_and_why(tmp_path: Path) -> None:
    name = keep.name_of(AT, "cgroup-oom")
    assert name == "20261130T005320.250Z-cgroup-oom"
    assert keep.time_of(name) == AT
    keep.write_report(tmp_path / "a/b", name, FORMS)
    assert keep.reports(tmp_path / "a/b") == [name]
    assert {path.name for path in (tmp_path / "a/b").iterdir()} == {f"{name}.{form}" for form in FORMS}
    assert {path.stat().st_mode & 0o007 for path in (tmp_path / "a/b").iterdir()} == {0}


@given(st.text(max_size=200))
def test_no_cause_leaves_the_folder(cause: str) -> None:
    name = keep.name_of(AT, cause)
    assert keep.REPORT.fullmatch(f"{name}.json")


def test_the_newest_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    names = [keep.name_of(AT + number, "x") for number in range(7)]
    for name in names:
        keep.write_report(tmp_path, name, FORMS)
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / f".{names[0]}.md.part").write_text("half")
    assert keep.rotate(tmp_path, 3) == names[:4]
    assert keep.reports(tmp_path) == names[4:]
    assert {path.name for path in tmp_path.iterdir() if not keep.REPORT.fullmatch(path.name)} == {
        "settings.json",
        "notes.md",
    }
    assert keep.rotate(tmp_path, 20) == []


def test_a_report_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("draftmark.service.watch.keep.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        keep.write_report(tmp_path, keep.name_of(AT, "x"), FORMS)
    assert list(tmp_path.iterdir()) == []


def test_no_folder_has_no_reports(tmp_path: Path) -> None:
    assert keep.reports(tmp_path / "none") == []
    keep.rotate(tmp_path / "none", 1)


def test_a_loop_is_reported_seldom() -> None:
    assert keep.pause([], 100.0) == 0
    assert keep.pause([98.0, 99.0], 100.0) == 0
    assert keep.pause([97.0, 98.0, 99.0], 100.0) == 57
    assert keep.pause([97.0, 98.0, 99.0], 160.0) == 0
    assert keep.pause([100.0 * number for number in range(10)], 1000.0) == 2600
    assert keep.pause([5000.0] * 5, 100.0) == 0, "the clock was set back"


def test_reports_that_are_gone_count_for_the_pace(tmp_path: Path) -> None:
    path = tmp_path / "new/llm.service.pace"
    for when in (97.0, 98.0, 99.0):
        assert keep.Pace(path).wait(when) == 0
        keep.Pace(path).note(when)
    assert keep.Pace(path).wait(100.0) == 57
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    for when in range(200, 300):
        keep.Pace(path).note(when)
    assert len(path.read_text().split()) == 10


def test_the_pace_is_kept_where_nothing_can_be_written(tmp_path: Path) -> None:
    pace = keep.Pace(tmp_path / "none/none/x.pace")
    for when in (97.0, 98.0, 99.0):
        pace.note(when)
    assert pace.wait(100.0) == 57
    (tmp_path / "broken").write_bytes(b"\xff x")
    assert keep.Pace(tmp_path / "broken").wait(1.0) == 0
