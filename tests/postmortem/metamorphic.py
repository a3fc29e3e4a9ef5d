"""Changes of a case that must not change its verdict, and one that takes the evidence away.

Each is a pure function of the files and a random generator: bytes in, bytes out, the truth kept. Where a change
cannot be applied to a case, `NotApplicableError` says why.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from . import carriers, traffic
from .carriers import (
    CONTAINER_FORMS,
    JOURNAL,
    JOURNAL_FORMS,
    Entry,
    body,
    encoded,
    is_application,
    is_document,
    mapped,
)
from .corpus import Files


class NotApplicableError(Exception):
    """The change makes no sense for this case."""


@dataclass(frozen=True)
class Changed:
    """The case after a change: its files, and the order in which they are named on the command line."""

    files: dict[str, bytes]
    order: tuple[str, ...]


Change = Callable[[Files, random.Random], Changed]


def _changed(files: Mapping[str, bytes]) -> Changed:
    return Changed(dict(files), tuple(sorted(files)))


def _applications(files: Files) -> list[str]:
    return [name for name, content in files.items() if is_application(name, content)]


def _logs(files: Files) -> list[str]:
    return [name for name in files if not is_document(name)]


def _need(names: list[str], why: str) -> list[str]:
    if not names:
        raise NotApplicableError(why)
    return names


# 1 · the prefix of whoever carried the lines here


def entries(files: Files, name: str, ident: str, rng: random.Random) -> list[Entry]:
    """The lines of a log as journald or a container runtime would have received them."""
    lines, _ = body(files[name])
    unit, host, pid = carriers.unit_of(files), carriers.host_of(files), rng.randrange(1000, 60000)
    return [
        carriers.entry_of(line, at, unit) or Entry(at, host, ident, pid, line, unit)
        for line, at in zip(lines, carriers.moments(lines, files), strict=True)
    ]


def prefixed(form: str) -> Change:
    """All lines of the application, and of the journal where there is one, in another carrier's form."""

    def change(files: Files, rng: random.Random) -> Changed:
        result = dict(files)
        names = _applications(files)
        if form in JOURNAL_FORMS:
            names += [n for n in _logs(files) if carriers.is_journal(files[n])]
        render = JOURNAL_FORMS.get(form) or CONTAINER_FORMS[form]
        ident = "python3" if form in JOURNAL_FORMS else "server"
        for name in _need(names, "no log whose prefix could be another"):
            _, ended = body(files[name])
            lines = [render(entry) for entry in entries(files, name, ident, rng)]
            result[name] = encoded([*lines, ""] if ended else lines)
        if result == files:
            raise NotApplicableError("it has this form already")
        return _changed(result)

    return change


# 2, 3 · names and numbers that mean nothing

ADDRESS = re.compile(r"(?<=[\s\"'(\[/@])(?:10|172|192)\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.])")


def host(files: Files, rng: random.Random) -> Changed:
    """Other host names and addresses, the same ones everywhere."""
    names = {old: f"node{rng.randrange(100, 999)}.example" for old in carriers.hosts(files)}
    addresses: dict[str, str] = {}

    def address(found: re.Match[str]) -> str:
        return addresses.setdefault(found[0], f"10.{rng.randrange(99)}.{rng.randrange(99)}.{len(addresses) + 2}")

    def change(line: str) -> str:
        for old, new in names.items():
            line = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w.-])", new, line)
        return ADDRESS.sub(address, line)

    result = {name: mapped(content, change) for name, content in files.items()}
    if result == files:
        raise NotApplicableError("no file names a host or an address")
    return _changed(result)


PID = re.compile(
    r"(?:pid[=: ]+|[Pp]rocess \[?|PID: +|\"Pid\": |PID=|^\[ *|\w\[)(\d+)(?=\]?[\s),.:;\"'\]]|$)"
    r"|^ *(\d+) +(\d+) +[\w/]",
    re.MULTILINE,
)


def pids(files: Files, rng: random.Random) -> Changed:
    """Other process ids, the same ones everywhere; 0 and 1 stay what they are."""
    found: set[str] = set()
    for name, content in files.items():
        text = content.decode("utf-8", "surrogateescape")
        for match in PID.finditer(text):
            dmesg = carriers.is_kernel(content) and match[0].startswith("[")
            numbers = (match[2], match[3]) if name.startswith("ps") else (match[1],)
            found.update(n for n in numbers if n and not dmesg and int(n) > 1)
    new = rng.sample(range(20000, 4_000_000), len(found))
    renamed = dict(zip(sorted(found), map(str, new), strict=True))
    if not renamed:
        raise NotApplicableError("no file names a process id")

    def rename(line: str) -> str:
        line = PID.sub(lambda m: re.sub(r"\d+$", lambda d: renamed.get(d[0], d[0]), m[0]) if m[1] else m[0], line)
        long = "|".join(p for p in renamed if len(p) > 3)
        if not long:
            return line
        return re.sub(rf"(?<![\w.:/#-])(?:{long})(?![\w:/-]|\.\d)", lambda m: renamed[m[0]], line)

    return _changed({name: mapped(content, rename) for name, content in files.items()})


# 4 · another day, in another language

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
        return _changed(result)

    return change


def _in_words(files: Files, rng: random.Random) -> dict[str, bytes]:
    """The files, journals in the short form."""
    result = dict(files)
    for name in _logs(files):
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


# 5, 6 · dress


def ansi(files: Files, rng: random.Random) -> Changed:
    """Colours: around the whole line, around the process' tag, or around the level."""

    def colour(line: str) -> str:
        if not line or rng.random() < 0.3:
            return line
        if tag := re.match(r"\([\w ]+ pid=\d+\)", line):
            return f"\x1b[1;36m{tag[0]}\x1b[0;0m{line[tag.end() :]}"
        if rng.random() < 0.5 and (level := re.search(r"\b(?:INFO|WARNING|ERROR|error|warn)\b", line)):
            return f"{line[: level.start()]}\x1b[32m{level[0]}\x1b[0m{line[level.end() :]}"
        return f"\x1b[0;1;38;5;185m{line}\x1b[0m"

    names = _need(_logs(files), "no log")
    return _changed({n: mapped(c, colour) if n in names else c for n, c in files.items()})


def crlf(files: Files, _rng: random.Random) -> Changed:
    """Line ends of another system, in every file."""
    return _changed({name: content.replace(b"\n", b"\r\n") for name, content in files.items()})


# 7, 8 · other voices


def foreign(form: str, how: str) -> Change:
    """Other services between the lines, with their own errors, and one that dies.

    In journald's form the host's journal is merged into one; in compose's form it is the log of all containers.
    """

    def change(files: Files, rng: random.Random) -> Changed:
        names = _applications(files)
        journals = [n for n in _logs(files) if carriers.is_journal(files[n]) and not carriers.is_kernel(files[n])]
        if form in JOURNAL_FORMS:
            names += journals
        render = JOURNAL_FORMS.get(form) or CONTAINER_FORMS[form]
        result = dict(files)
        for name in _need(names, "no log in which other services would stand"):
            own = entries(files, name, "python3" if form in JOURNAL_FORMS else "server", rng)
            merged = list(_interleaved(own, how if name == names[-1] else "", rng))
            lines = [render(entry) for entry in merged]
            if form == "compose":
                lines.insert(rng.randrange(len(lines) + 1), "postgres-1 exited with code 137")
            result[name] = encoded([*lines, ""])
        return _changed(result)

    return change


def _interleaved(own: list[Entry], how: str, rng: random.Random) -> Iterator[Entry]:
    host = own[0].host
    death = rng.randrange(len(own)) if how else -1
    if how == "stop timeout":
        asked = own[death].at - timedelta(seconds=90)
        yield Entry(min(asked, own[0].at), host, "systemd", 1, "Stopping reportd.service - Report builder...")
    for n, entry in enumerate(own):
        if n == death:
            yield from traffic.neighbour_ends(how, entry.at, host)
        for _ in range(rng.randrange(3)):
            yield traffic.neighbour(entry.at, host, rng)
        yield entry


def crowded(count: int = 10_000) -> Change:
    """Many lines of normal traffic before what happened, and many that are none of ours after it.

    A log that shows a start has the traffic after its ready line; one that shows a start and never became ready
    has no traffic of its own, so another service's stands before it.
    """

    def change(files: Files, rng: random.Random) -> Changed:
        result = dict(files)
        for name in _need(_logs(files), "no log"):
            content = files[name]
            if carriers.is_kernel(content) or name.startswith("client"):
                continue
            lines, _ = body(content)
            at = carriers.moments(lines, files)
            first, last = (at[0], at[-1]) if at else (carriers.DEFAULT, carriers.DEFAULT)
            before, after = _earlier(first, count), _later(last, count)
            if carriers.is_journal(content):
                place = 0
                form = carriers.short_iso if lines[0].startswith("20") else carriers.short
                where = carriers.host_of(files)
                head = [form(e) for e in traffic.chores(before, where, rng)]
                tail = [form(e) for e in traffic.chores(after, where, rng)]
            else:
                place, own = _place(lines)
                before = [at[place - 1]] * count if place else before
                text = "\n".join(lines)
                head = traffic.normal(text, before, rng) if own else traffic.web(before, rng)
                tail = traffic.web(after, rng)
            result[name] = encoded([*lines[:place], *head, *lines[place:], *tail, ""])
        if result == files:
            raise NotApplicableError("only kernel lines and documents")
        return _changed(result)

    return change


def _place(lines: list[str]) -> tuple[int, bool]:
    """Where traffic belongs, and whether it can be the server's own."""
    for sign in (traffic.READY, traffic.STARTED):
        for n, line in enumerate(lines):
            if sign.search(line):
                return n + 1, True
    starts = any(traffic.STARTING.search(line) for line in lines)
    works = any(traffic.WORKING.search(line) for line in lines)
    return 0, works and not starts


def _earlier(first: datetime, count: int) -> list[datetime]:
    return [first - timedelta(seconds=(count - n) // 20 + 1) for n in range(count)]


def _later(last: datetime, count: int) -> list[datetime]:
    return [last + timedelta(seconds=n // 20 + 5) for n in range(count)]


# 9 to 13 · how files are kept and named


def rotated(files: Files, rng: random.Random) -> Changed:
    """The application's log in two files, the older one with `.1` behind its name."""
    result = dict(files)
    names = [n for n in _logs(files) if len(body(files[n])[0]) > 1 and not n.startswith("client")]
    for name in _need(names, "no log of two lines"):
        lines, ended = body(files[name])
        cut = rng.randrange(1, len(lines))
        result[f"{name}.1"] = encoded([*lines[:cut], ""])
        result[name] = encoded([*lines[cut:], ""] if ended else lines[cut:])
    return _changed(result)


def zipped(files: Files, _rng: random.Random) -> Changed:
    """Every log compressed."""
    names = _need(_logs(files), "no log")
    packed = {f"{n}.gz": gzip.compress(files[n], mtime=0) for n in names}
    return _changed(packed | {n: c for n, c in files.items() if n not in names})


def doubled(files: Files, _rng: random.Random) -> Changed:
    """Every line of a log twice, as when two shippers write it."""
    names = _need(_logs(files), "no log")
    return _changed({n: mapped(c, lambda line: f"{line}\n{line}") if n in names else c for n, c in files.items()})


def reordered(files: Files, rng: random.Random) -> Changed:
    """The arguments in another order than by name."""
    if len(files) < 2:
        raise NotApplicableError("one file has no order")
    usual = tuple(sorted(files))
    order = list(usual)
    while tuple(order) == usual:
        rng.shuffle(order)
    return Changed(dict(files), tuple(order))


def renamed(files: Files, rng: random.Random) -> Changed:
    """Names that say nothing of the content."""
    names = [f"{letter}.{end}" for letter, end in zip("qwertyuiop", ("out", "txt", "log", "1") * 3, strict=False)]
    chosen = dict(zip(sorted(files), rng.sample(names, len(files)), strict=True))
    return _changed({chosen[n]: c for n, c in files.items()})


CHANGES: Mapping[str, Change] = {
    **{f"prefix {form}": prefixed(form) for form in (*JOURNAL_FORMS, *CONTAINER_FORMS)},
    "host": host,
    "pids": pids,
    **{f"dates {locale}": dates(locale) for locale in LOCALES},
    "ansi": ansi,
    "crlf": crlf,
    **{f"foreign {how}": foreign("short-iso", how) for how in traffic.ENDS},
    "foreign containers": foreign("compose", ""),
    "10 000 lines": crowded(),
    "rotated": rotated,
    "gz": zipped,
    "doubled": doubled,
    "order": reordered,
    "names": renamed,
}


def without(files: Files, gone: Callable[[str, int, str], bool]) -> dict[str, bytes]:
    """The files without the lines for which `gone(file, number, text)` holds. JSON stays JSON where it can."""
    result = {}
    for name, content in files.items():
        lines, ended = body(content)
        kept = [line for n, line in enumerate(lines, 1) if not gone(name, n, line)]
        if name.endswith(".json") and len(kept) < len(lines):
            kept = re.sub(r",(\s*[}\]])", r"\1", "\n".join(kept)).split("\n")
        result[name] = encoded([*kept, ""] if ended and kept else kept)
    return result
