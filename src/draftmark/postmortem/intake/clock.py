"""Written dates → seconds since the epoch. A missing year is guessed, a missing zone is UTC: good for order."""

from __future__ import annotations

import time
import unicodedata
from datetime import date
from functools import lru_cache

EPOCH_DAY = date(1970, 1, 1).toordinal()
DAY = 86_400

# How the months' names begin in common locales (`%b` and `%B`; en de fr es it pt nl sv fi pl cs tr ru uk).
_MONTHS = (
    "jan jän gen ene tam sty led oca янв січ",
    "feb fév fev helmi lut úno şub фев лют",
    "mar mär mrt maalis bře мар бер",  # noqa: RUF001
    "apr avr abr huhti kwi dub nis апр кві",
    "may mai mag maj mei touko kvě май мая тра",
    "jun juin giu kesä cze červen čen haz июн чер",
    "jul juil lug heinä lip červenec čec tem июл лип",
    "aug aoû ago elo sie srp ağu авг сер",  # noqa: RUF001
    "sep set syys wrz zář eyl сен вер",
    "oct okt ott out loka paź říj eki окт жов",
    "nov marras lis kas ноя лис",
    "dec déc dez dic joulu gru pro ara дек гру",  # noqa: RUF001
)


def _plain(word: str) -> str:
    folded = unicodedata.normalize("NFKD", word.casefold())
    return "".join(c for c in folded if not unicodedata.combining(c))


_MONTH_OF = {_plain(name): number for number, names in enumerate(_MONTHS, 1) for name in names.split()}


@lru_cache(maxsize=1024)
def month_number(word: str) -> int | None:
    """Month of a name in any of the locales known here; None for any other word."""
    digits = word.rstrip("月월. ")
    if digits.isdecimal():
        return int(digits) if 1 <= int(digits) <= 12 else None
    plain = _plain(word)
    return next((_MONTH_OF[plain[:n]] for n in range(min(8, len(plain)), 2, -1) if plain[:n] in _MONTH_OF), None)


@lru_cache(maxsize=4096)
def day_start(year: int, month: int, day: int) -> int | None:
    """Epoch seconds of midnight UTC; None when there is no such day."""
    try:
        return (date(year, month, day).toordinal() - EPOCH_DAY) * DAY
    except ValueError:
        return None


def seconds_of_day(hms: str) -> int | None:
    """Of `HH:MM:SS`; 60 seconds are let pass (a leap second)."""
    hour, minute, second = int(hms[:2]), int(hms[3:5]), int(hms[6:8])
    return hour * 3600 + minute * 60 + second if hour < 24 and minute < 60 and second <= 60 else None


@lru_cache(maxsize=4096)
def epoch(stamp: str) -> int | None:
    """Of `YYYY-MM-DDTHH:MM:SS` with any separators."""
    start = day_start(int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10]))
    within = seconds_of_day(stamp[11:19])
    return None if start is None or within is None else start + within


@lru_cache(maxsize=256)
def zone_offset(zone: str | None) -> int:
    """Seconds east of Greenwich of `Z`, `UTC`, `+0100`, `-07:00`, `+01`; anything else is taken as UTC."""
    if not zone or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    offset = int(digits[:2]) * 3600 + int(digits[2:4] or 0) * 60
    return -offset if zone[0] == "-" else offset


def fraction(digits: str | None) -> float:
    """Of `.123456` or `,123`."""
    return float("0." + digits[1:]) if digits else 0.0


class Calendar:
    """Guesses the years that dates leave out: the one that brings the date nearest to the anchor.

    Args:
        anchor: Epoch seconds of something that was dated in full nearby; None: today, and then never in the future.
    """

    def __init__(self, anchor: float | None = None) -> None:
        self.anchored = anchor is not None
        self.anchor = time.time() if anchor is None else anchor
        moment = time.gmtime(min(max(self.anchor, 0), 1 << 40))
        self._years = (moment.tm_year - 1, moment.tm_year, moment.tm_year + 1)
        self._month = moment.tm_mon
        self._cache: dict[tuple[int | None, int], int | None] = {}

    def yearless(self, month: int | None, day: int, hms: str) -> int | None:
        """Epoch seconds of a date without a year; an unknown month is taken as the anchor's."""
        key = (month, day)
        if key not in self._cache:
            if len(self._cache) > 4096:
                self._cache.clear()
            self._cache[key] = self._nearest(month or self._month, day)
        start, within = self._cache[key], seconds_of_day(hms)
        return None if start is None or within is None else start + within

    def _nearest(self, month: int, day: int) -> int | None:
        starts = [start for year in self._years if (start := day_start(year, month, day)) is not None]
        if not self.anchored:
            starts = [start for start in starts if start <= self.anchor + DAY] or starts
        return min(starts, key=lambda start: abs(start - self.anchor), default=None)
