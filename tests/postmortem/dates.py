"""Another day, in another language."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from . import carriers
from .carriers import JOURNAL, body, encoded, mapped
from .change import Change, Changed, NotApplicableError, as_changed, entries, logs
from .corpus import Files

LOCALES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "de": (
        ("Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez"),
        ("Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"),
    ),
    "fr": (
        ("janv.", "févr.", "mars", "avril", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."),
        ("lun.", "mar.", "mer.", "jeu.", "ven.", "sam.", "dim."),
    ),
    "ja": (tuple(f"{n}月" for n in range(1, 13)), ("月", "火", "水", "木", "金", "土", "日")),
}
ANY_DATE = re.compile(
    rf"(?P<iso>\b20\d\d-\d\d-\d\d)|{carriers.SHORT.pattern}|(?:(?P<day_name>{'|'.join(carriers.DAYS)}) )?"
    rf"(?P<words>(?:{carriers.MONTH}) [ \d]\d) (?P<time>\d\d:\d\d:\d\d)(?P<y> 20\d\d)?|"
    rf"(?:(?P<kday>{'|'.join(carriers.DAYS)}), )(?P<kube>\d\d (?:{carriers.MONTH}) 20\d\d)"
)


def dates(locale: str) -> Change:
    """Every date moved by the same number of days; month and weekday of journald and dmesg in a locale's words.

    journald's ISO form has no words, so its lines are shown in the short form.
    """

    def change(files: Files, rng: random.Random) -> Changed:
        shift, year = timedelta(days=rng.randrange(20, 300)), carriers.year_of(files)

        def moved(line: str) -> str:
            carried = bool(JOURNAL.match(line) or carriers.DMESG.match(line))

            def move(found: re.Match[str]) -> str:
                old = _date(found, year)
                words = LOCALES[locale] if carried and found.start() < 2 else (carriers.MONTHS, carriers.DAYS)
                return _written(found, old + shift, *words) if old else found[0]

            return ANY_DATE.sub(move, line)

        result = {name: mapped(content, moved) for name, content in _in_words(files, rng).items()}
        if result == files:
            raise NotApplicableError("no date in any file")
        return as_changed(result)

    return change


def _in_words(files: Files, rng: random.Random) -> dict[str, bytes]:
    """The files, journals in the short form."""
    result = dict(files)
    for name in logs(files):
        if carriers.is_journal(files[name]):
            _, ended = body(files[name])
            lines = [carriers.short(entry) for entry in entries(files, name, "", rng)]
            result[name] = encoded([*lines, ""] if ended else lines)
    return result


def _written(found: re.Match[str], new: date, months: Sequence[str], days: Sequence[str]) -> str:
    """A date in the form of the one that was found."""
    if found["iso"]:
        return new.isoformat()
    if found["clock"]:
        return f"{new:%m-%d} {found['clock']}"
    if found["kube"]:
        return f"{carriers.DAYS[new.weekday()]}, {new.day:02} {carriers.MONTHS[new.month - 1]} {new.year}"
    name = f"{days[new.weekday()]} " if found["day_name"] else ""
    return f"{name}{months[new.month - 1]} {new.day:2} {found['time']}" + (f" {new.year}" if found["y"] else "")


def _date(found: re.Match[str], year: int) -> date | None:
    try:
        if found["iso"]:
            return date.fromisoformat(found["iso"])
        if found["clock"]:
            return date(year, int(found["month"]), int(found["day"]))
        if found["kube"]:
            day, month, own = found["kube"].split()
        else:
            month, day = found["words"].split()
            own = found["y"] or str(year)
        return date(int(own), carriers.MONTHS.index(month) + 1, int(day))
    except ValueError:
        return None
