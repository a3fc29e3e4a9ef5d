"""Changes of a case that must not change its verdict, and one that takes the evidence away.

Each is a pure function of the files and a random generator: bytes in, bytes out, the truth kept. Where a change
cannot be applied to a case, `NotApplicableError` says why.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Mapping

from . import carriers, traffic
from .carriers import CONTAINER_FORMS, JOURNAL_FORMS, body, encoded, mapped
from .change import Change, Changed, NotApplicableError, applications, as_changed, entries, logs, need
from .corpus import Files
from .dates import LOCALES, dates
from .voices import crowded, foreign

# 1 · the prefix of whoever carried the lines here


def prefixed(form: str) -> Change:
    """All lines of the application, and of the journal where there is one, in another carrier's form."""

    def change(files: Files, rng: random.Random) -> Changed:
        result = dict(files)
        names = applications(files)
        if form in JOURNAL_FORMS:
            names += [n for n in logs(files) if carriers.is_journal(files[n])]
        render = JOURNAL_FORMS.get(form) or CONTAINER_FORMS[form]
        ident = "python3" if form in JOURNAL_FORMS else "server"
        for name in need(names, "no log whose prefix could be another"):
            _, ended = body(files[name])
            lines = [render(entry) for entry in entries(files, name, ident, rng)]
            result[name] = encoded([*lines, ""] if ended else lines)
        if result == files:
            raise NotApplicableError("it has this form already")
        return as_changed(result)

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
    return as_changed(result)


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

    return as_changed({name: mapped(content, rename) for name, content in files.items()})


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

    names = need(logs(files), "no log")
    return as_changed({n: mapped(c, colour) if n in names else c for n, c in files.items()})


def crlf(files: Files, _rng: random.Random) -> Changed:
    """Line ends of another system, in every file."""
    return as_changed({name: content.replace(b"\n", b"\r\n") for name, content in files.items()})


# 9 to 13 · how files are kept and named


def rotated(files: Files, rng: random.Random) -> Changed:
    """The application's log in two files, the older one with `.1` behind its name."""
    result = dict(files)
    names = [n for n in logs(files) if len(body(files[n])[0]) > 1 and not n.startswith("client")]
    for name in need(names, "no log of two lines"):
        lines, ended = body(files[name])
        cut = rng.randrange(1, len(lines))
        result[f"{name}.1"] = encoded([*lines[:cut], ""])
        result[name] = encoded([*lines[cut:], ""] if ended else lines[cut:])
    return as_changed(result)


def zipped(files: Files, _rng: random.Random) -> Changed:
    """Every log compressed."""
    names = need(logs(files), "no log")
    packed = {f"{n}.gz": gzip.compress(files[n], mtime=0) for n in names}
    return as_changed(packed | {n: c for n, c in files.items() if n not in names})


def doubled(files: Files, _rng: random.Random) -> Changed:
    """Every line of a log twice, as when two shippers write it."""
    names = need(logs(files), "no log")
    return as_changed({n: mapped(c, lambda line: f"{line}\n{line}") if n in names else c for n, c in files.items()})


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
    return as_changed({chosen[n]: c for n, c in files.items()})


CHANGES: Mapping[str, Change] = {
    **{f"prefix {form}": prefixed(form) for form in (*JOURNAL_FORMS, *CONTAINER_FORMS)},
    "host": host,
    "pids": pids,
    **{f"dates {locale}": dates(locale) for locale in LOCALES},
    "ansi": ansi,
    "crlf": crlf,
    **{f"foreign {how}": foreign("short-iso", how) for how in traffic.ENDS},
    "foreign by field": foreign("json", named=False),
    "foreign unnamed": foreign("short-iso", named=False),
    "foreign containers": foreign("compose"),
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
