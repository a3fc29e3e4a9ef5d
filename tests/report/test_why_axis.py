"""Times as they stand in logs, on one axis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.report.why_axis import axis
from draftmark.report.why_times import seconds


def test_a_log_without_a_zone_agrees_with_its_journal() -> None:
    found, relative = seconds(["2026-06-02T03:10:16+0200", "2026-06-02 03:10:16", "Jun  2 03:10:16"])
    assert not relative
    assert found[0] == found[1] == found[2]


def test_different_zones_are_brought_together() -> None:
    found, _ = seconds(["2026-06-02T03:10:16+0200", "2026-06-02T01:10:16Z"])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-06-02T03:10:16.500+0000", "2026-06-02 03:10:16,500", "Jun  2 03:10:16.5",
        "Tue Jun  2 03:10:16.5 2026", "06-02 03:10:16.500", "0602 03:10:16.500000", "2. juin 03:10:16",
        "juin 02 03:10:16.5", "2026/06/02 03:10:16.5",
    ],
)  # fmt: skip
def test_written_forms(stamp: str) -> None:
    found, _ = seconds([stamp, "2026-06-02 03:10:16.5"])
    assert found[0] in (found[1], None)
    assert (found[0] is None) == stamp.startswith("2. ")


def test_a_relative_clock_alone_is_an_axis_and_beside_dates_it_is_not() -> None:
    assert seconds(["[   12.500000]", "14.5"]) == ([12.5, 14.5], True)
    assert seconds(["12.5", "2026-06-02 03:10:16"])[0][0] is None


def test_places_are_to_scale() -> None:
    found = axis(["2026-06-02 03:00:00", "2026-06-02 03:00:30", "2026-06-02 03:01:00"])
    assert found is not None
    first, middle, last = (place for place in found.places if place is not None)
    assert middle - first == pytest.approx(last - middle)
    assert found.breaks == ()
    assert found.day == "2026-06-02"
    assert found.ticks[0].label == "03:00:00"


def test_a_long_silence_is_marked_and_leaves_room_for_the_rest() -> None:
    found = axis(["2026-06-01 03:00:00", "2026-06-02 03:00:00", "2026-06-02 03:00:05", "2026-06-02 03:00:09"])
    assert found is not None
    assert [gap.seconds for gap in found.breaks] == [86400]
    second, last = found.places[1], found.places[3]
    assert second is not None
    assert last is not None
    assert last - second > 60


def test_one_time_is_no_axis() -> None:
    assert axis([]) is None
    assert axis(["2026-06-02 03:00:00", None, "yesterday"]) is None
    assert axis(["2026-06-02 03:00:00"] * 2) is not None


STAMPS = st.datetimes().map(lambda moment: moment.isoformat()) | st.text(max_size=40) | st.none()


@given(st.lists(STAMPS, max_size=40))
def test_whatever_stands_in_a_log_has_its_place_in_order(stamps: list[str | None]) -> None:
    found = axis(stamps)
    if found is None:
        return
    times, _ = seconds(stamps)
    known = sorted((time, place) for time, place in zip(times, found.places, strict=True) if time is not None)
    places = [place for _, place in known if place is not None]
    assert len(places) == len(known)
    assert places == sorted(places)
    assert all(0 <= place <= 100.001 for place in places)
    assert all(0 <= tick.left <= 100.001 for tick in found.ticks)
    assert len(found.ticks) <= 6
