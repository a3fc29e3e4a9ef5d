"""Prefixes of what carries lines: journald, syslog, the kernel's ring buffer, container runtimes, launchers."""

from __future__ import annotations

import re

from draftmark.postmortem.intake import viewers
from draftmark.postmortem.intake.clock import day_start as day_start_of
from draftmark.postmortem.intake.clock import epoch, fraction, month_number, seconds_of_day, zone_offset
from draftmark.postmortem.intake.head import LEVELS, Head
from draftmark.postmortem.intake.layer import Layer

_HMS = r"(\d\d:\d\d:\d\d)"
# Zones that have only a name are taken as UTC: several share one.
_ZONE = r"Z|UTC|GMT|BST|WES?T|CES?T|EES?T|MSK|IST|SGT|HKT|[JKH]ST|(?:AE|NZ|AK|[ECMP])[DS]T|[+-]\d\d:?\d\d"
_DATE = r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d)([.,]\d{1,9})?(?: ?(" + _ZONE + r")(?![^\s:\]|,\"]))?"
_UNIT = re.compile(
    r"(?:(?:Start(?:ing|ed)|Stopp(?:ing|ed)|Reload(?:ing|ed)|Finished|Failed to start|Triggering) )?"
    r"([\w@.:\\-]{1,250}\.(?:service|scope|slice|socket|mount|target|timer))(?=[: .]|$)"
)

_SYSLOG_TAIL = re.compile(r" ([\w.:@%-]{1,255}) (\(?[^\s\[\]()]{1,128}?\)?)(?:\[(\d{1,10})\])?:(?: |$)")
_CRI = re.compile(r" (stdout|stderr) ([FP])(?::\S{0,64})?(?: |$)")
_LOGGER_TAIL = re.compile(r" - ([\w.:/<>-]{1,120}) - ([A-Z]{3,8}) - ")
_LEVEL_TAIL = re.compile(
    r"[ \t|]{1,8}(?!\w{4,8} (?:\d{4}-)?\d\d-\d\d \d\d:)"  # a logger's date after the level: not this layer
    r"[\[(]?(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)[\])]?"
    r"(?: {0,8}\| ?| ?: {0,8}| {1,8}|\t{1,2}|$)"
)


def name_unit(text: str, head: Head) -> None:
    """Systemd's own lines are about a unit, which their text names."""
    if not head.unit and (head.ident == "systemd" or head.ident[:1] == "(") and (match := _UNIT.match(text)):
        head.unit = match[1]


def syslog_tail(line: str, at: int, head: Head, *, sure: bool) -> int:
    """`host ident[pid]: ` after a date; without `sure`, only if it can be nothing else."""
    match = _SYSLOG_TAIL.match(line, at)
    if match is None or not (sure or match[3] or match[2] == "kernel"):
        return -1
    host, ident, pid = match[1], match[2], match[3]
    if ident.endswith((".service", ".scope")):  # journalctl -o with-unit
        if ident == "init.scope" and pid == "1":
            ident = "systemd"
        elif not head.unit:
            head.unit = ident
    head.writer(ident, pid, host)
    return match.end()


def _iso(match: re.Match[str], head: Head) -> int:
    seconds, digits, zone = epoch(match[1]), match[2], match[3]
    if seconds is None:
        return -1
    moment = seconds + fraction(digits) - zone_offset(zone) if digits or zone else seconds
    head.wall(moment, match[0])
    line, at = match.string, match.end()
    if at == len(line):
        return at
    if (tail := _CRI.match(line, at)) and match[1][10] == "T":
        head.stream, head.partial = tail[1], tail[2] == "P"
        return tail.end()
    if line[at] in '",' and (after := viewers.cell(line, at, head)) >= 0:
        return after
    if "|" in line[at : at + 4] and (after := viewers.bars(line, at, head)) >= 0:
        return after
    return _after_date(match, head)


def _after_date(match: re.Match[str], head: Head) -> int:
    """Where the text starts behind a date of a logger, of syslog, or of neither."""
    line, at, digits, zone = match.string, match.end(), match[2], match[3]
    if tail := _LOGGER_TAIL.match(line, at):
        head.level = LEVELS.get(tail[2], head.level)
        return tail.end()
    if tail := _LEVEL_TAIL.match(line, at):
        head.level = LEVELS[tail[1]]
        return tail.end()
    numeric = zone is not None and zone[0] in "+-" and (digits is None or len(digits) <= 7)
    if numeric and (after := viewers.stream(line, at, head)) >= 0:
        return after
    after = syslog_tail(line, at, head, sure=numeric) if match[1][10] == "T" or zone else -1
    if after >= 0:
        return after
    if line[at] == "\t":
        return viewers.tabbed(line, at)
    return at + 1 if line[at] == " " else at


def _cloud(match: re.Match[str], head: Head) -> int:
    """The severity is that of the stream: all of stderr is ERROR. It says nothing of the line."""
    seconds = epoch(match[1])
    if seconds is None:
        return -1
    head.wall(seconds + fraction(match[2]), match[0].split()[1])
    return match.end()


def _month_first(match: re.Match[str], head: Head) -> int:
    month, day, hms, digits = match[1], int(match[2]), match[3], match[4]
    seconds = head.calendar.yearless(month_number(month), day, hms)
    line, at = match.string, match.end()
    after = syslog_tail(line, at, head, sure=True)
    if after < 0 and month_number(month) is None:
        return -1
    if seconds is not None:
        head.wall(seconds + fraction(digits), match[0].strip(), dated=False)
    return after if after >= 0 else at + (line[at : at + 1] == " ")


def _kernel_seconds(match: re.Match[str], head: Head) -> int:
    head.relative(float(match[1]), match[0].strip())
    after = syslog_tail(match.string, match.end() - (match[0][-1] == " "), head, sure=False)
    if after >= 0:  # journalctl -o short-monotonic
        return after
    head.writer("kernel")
    return match.end()


def _kernel(match: re.Match[str], head: Head) -> int:
    head.writer("kernel")
    return match.end()


def _kernel_date(match: re.Match[str], head: Head) -> int:
    month = month_number(match[1])
    start = day_start_of(int(match[4]), month, int(match[2])) if month else None
    within = seconds_of_day(match[3])
    if start is None and within is not None:
        start = head.calendar.yearless(None, int(match[2]), "00:00:00")
    if start is not None and within is not None:
        head.wall(float(start + within), match[0].strip(), dated=month is not None)
    head.writer("kernel")
    return match.end()


def _kernel_minute(match: re.Match[str], head: Head) -> int:
    seconds = head.calendar.yearless(month_number(match[1]), int(match[2]), match[3] + ":00")
    if seconds is not None:
        head.wall(float(seconds), match[0].strip(), dated=False)
    head.writer("kernel")
    return match.end()


def _kernel_record(match: re.Match[str], head: Head) -> int:
    head.relative(int(match[1]) / 1e6, match[1])
    head.writer("kernel")
    return match.end()


def _priority(match: re.Match[str], _head: Head) -> int:
    return match.end()


def _rfc5424(match: re.Match[str], head: Head) -> int:
    seconds = epoch(match[1])
    if seconds is not None:
        head.wall(seconds + fraction(match[2]) - zone_offset(match[3]), match[0].split(" ")[1])
    pid = match[6] if match[6].isdecimal() else None
    head.writer("" if match[5] == "-" else match[5], pid, "" if match[4] == "-" else match[4])
    return match.end()


def _unix(match: re.Match[str], head: Head) -> int:
    after = syslog_tail(match.string, match.end(), head, sure=True)
    if after >= 0:
        head.wall(float(match[1]), match[1])
    return after


def _container(match: re.Match[str], head: Head) -> int:
    head.writer(match[1])
    return match.end()


def _pod(match: re.Match[str], head: Head) -> int:
    head.writer(f"{match[1]}/{match[2]}")
    return match.end()


def _task(match: re.Match[str], head: Head) -> int:
    head.act(f"task{int(match[1])}")
    return match.end()


def _mpi(match: re.Match[str], head: Head) -> int:
    head.act(f"rank{match[1]}")
    return match.end()


ISO = Layer(_DATE, _iso)
CLOUD = Layer(  # Google Cloud's log explorer, as text
    r"(?:DEFAULT|DEBUG|INFO|NOTICE|WARNING|ERROR|CRITICAL|ALERT|EMERGENCY) {1,8}"
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z(?: |$)",
    _cloud,
)
WEEKDAY_ISO = Layer(r"[^\W\d_]{1,12}\.? " + _DATE, _iso)
MONTH_FIRST = Layer(
    r" {0,2}([^\W\d_]{1,12}\.?|\d{1,2} ?[月월]) {1,2}(\d{1,2})日? " + _HMS + r"(\.\d{1,6})?",
    _month_first,
)
KERNEL_SECONDS = Layer(
    r"\[ {0,8}(\d{1,10}\.\d{1,9}) ?\](?:\[ {0,8}[TC]\d{1,10}\])? ?",
    _kernel_seconds,
)
KERNEL_DELTA = Layer(r"\[ {0,8}[+<] {0,8}\d{1,10}\.\d{3,9}>?\] ?", _kernel)
KERNEL_DATE = Layer(
    r"\[[^\d\[\]\s]{1,24} {1,3}([^\s\[\]]{1,12}) {1,3}(\d{1,2}) " + _HMS + r" (\d{4})\] ?",
    _kernel_date,
)
KERNEL_MINUTE = Layer(r"\[([^\W\d_]{1,12}\.?) {1,2}(\d{1,2}) (\d\d:\d\d)\] ?", _kernel_minute)
KERNEL_FACILITY = Layer(
    r"(?:kern|user|daemon|syslog|auth|local\d) {0,6}:(?:emerg|alert|crit|err|warn|notice|info|debug) {0,6}: ?",
    _kernel,
)
KERNEL_RECORD = Layer(r"\d{1,3},\d{1,12},(\d{1,16}),[^;\s]{1,40};", _kernel_record)
RFC5424 = Layer(
    r"<\d{1,3}>1 " + _DATE + r" (\S{1,255}) (\S{1,48}) (\S{1,128}) \S{1,32} "
    r"(?:-|\[[^\]]{0,2000}\]) ?(?:\ufeff)?",
    _rfc5424,
)
PRIORITY = Layer(r"<\d{1,3}>", _priority)
UNIX = Layer(r"(\d{9,10}\.\d{3,6})", _unix)
COMPOSE = Layer(r"([A-Za-z0-9][\w.-]{0,62}[-_]\d{1,4}) {0,40}\|(?: |$)", _container)
COMPOSE_ANY = Layer(r"(?:\d{1,4}\||\d\d:\d\d:\d\d )?([A-Za-z0-9][\w.@-]{0,100}) {1,40}\|(?: |$)", _container)
KUBECTL = Layer(r"\[(?:pod/)?([\w.-]{1,253})/([\w.-]{1,253})\](?: |$)", _pod)
STERN = Layer(
    r"(?:[+-] )?([a-z0-9][a-z0-9.-]{0,252}) [\u203a>]? ?([a-z0-9][a-z0-9-]{0,62})(?: |$)",
    _pod,
)
TASK = Layer(r" {0,4}(\d{1,5}):(?: |$)", _task)
MPI = Layer(r"\[(?:[\w.-]{1,100}@)?\d{1,10},(\d{1,6})\](?:<std(?:out|err|diag)>)?:(?: |$)?", _mpi)
