"""What carries a log line: its clock, and the prefix of journald, docker, compose, CRI or kubectl."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTH = "|".join(MONTHS)

# A line as `journalctl -o short` and `short-iso` print it.
JOURNAL = re.compile(
    r"(?P<stamp>20\d\d-\d\d-\d\dT[\d:.]+(?:[+-]\d\d:?\d\d|Z)|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) "
    r"(?P<host>\S+) (?P<ident>[^\s:\[\]]+)(?:\[(?P<pid>\d+)\])?: (?P<text>.*)"
)
DMESG = re.compile(r"\[ *\d+\.\d{6}\] |\[(?:[A-Z][a-z]{2} )[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d 20\d\d\] ")
CARRIED = re.compile(r"\{\"|20\d\d-\d\d-\d\dT\S+Z (?:std(?:out|err) [FP] |\S)|\[pod/|[\w.-]+ +\| ")
DOCUMENT = re.compile(r"(?:show|describe|inspect|metrics|smi|sacct)|^ps\b|\.json$")

ISO = re.compile(r"(?P<year>20\d\d)-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)")
SHORT = re.compile(r"(?:(?<=[A-Z] )|(?<=\[))(?P<month>[01]\d)-(?P<day>[0-3]\d) (?P<clock>\d\d:\d\d:\d\d)")
WORDS = re.compile(rf"(?P<name>{MONTH}) +(?P<day>\d+) (?P<clock>\d\d:\d\d:\d\d)(?: (?P<year>20\d\d))?")
RELATIVE = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")

DEFAULT = datetime(2026, 3, 3, 10, tzinfo=UTC)


def is_document(name: str) -> bool:
    """Whether a file is one thing rather than lines in time."""
    return bool(DOCUMENT.search(name))


def decoded(content: bytes) -> list[str]:
    """Lines without their ends; a last one that is empty stands for the newline at the end of the file."""
    return content.decode("utf-8", "surrogateescape").split("\n")


def encoded(lines: list[str]) -> bytes:
    """Undoes `decoded`."""
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def mapped(content: bytes, change: Callable[[str], str]) -> bytes:
    """Each line changed."""
    lines = decoded(content)
    end = [lines.pop()] if lines and not lines[-1] else []
    return encoded([change(line) for line in lines] + end)


def body(content: bytes) -> tuple[list[str], bool]:
    """The lines, and whether the last one is ended."""
    lines = decoded(content)
    ended = bool(lines) and not lines[-1]
    return (lines[:-1] if ended else lines), ended


def is_journal(content: bytes) -> bool:
    """Whether most lines have journald's prefix."""
    lines, _ = body(content)
    return sum(bool(JOURNAL.match(line)) for line in lines) * 2 > len(lines)


def is_kernel(content: bytes) -> bool:
    """Whether it is the kernel's own log, from dmesg or journald."""
    lines, _ = body(content)
    kernels = (DMESG.match(line) or ((m := JOURNAL.match(line)) and m["ident"] == "kernel") for line in lines)
    return sum(map(bool, kernels)) * 2 > len(lines)


def is_application(name: str, content: bytes) -> bool:
    """Whether it is what the server itself wrote, with no carrier's prefix yet."""
    if is_document(name) or name.startswith("client") or is_journal(content) or is_kernel(content):
        return False
    lines, _ = body(content)
    return bool(lines) and sum(bool(CARRIED.match(line)) for line in lines) * 2 <= len(lines)


def year_of(files: Mapping[str, bytes]) -> int:
    """A year that some file names, for the clocks that have none."""
    for content in files.values():
        if found := re.search(rb"\b(20[12]\d)-\d\d-\d\d|\b[A-Z][a-z]{2} (20[12]\d) |(20[12]\d)\] ", content):
            return int(next(filter(None, found.groups())))
    return DEFAULT.year


def moment(line: str, year: int) -> datetime | None:
    """The wall clock of a line, in UTC; None when it has none in its first 60 characters."""
    for pattern in (ISO, SHORT, WORDS):
        if found := pattern.search(line[:60]):
            part = found.groupdict()
            month = part.get("month") or str(MONTHS.index(part["name"]) + 1)
            hour, minute, second = map(int, part["clock"].split(":"))
            try:
                return datetime(
                    int(part.get("year") or year), int(month), int(part["day"]), hour, minute, second, tzinfo=UTC
                )
            except ValueError:
                return None
    return None


def moments(lines: list[str], files: Mapping[str, bytes]) -> list[datetime]:
    """One clock reading a line: its own, or that of the line before it."""
    year = year_of(files)
    found = [moment(line, year) for line in lines]
    first = next((f for f in found if f), None) or _around(files, year)
    result, at = [], first
    for line, own in zip(lines, found, strict=True):
        if own:
            at = own
        elif relative := RELATIVE.match(line):
            minutes, seconds, thousandths, _ = map(int, relative.groups())
            at = max(at, first + timedelta(minutes=minutes, seconds=seconds, milliseconds=thousandths))
        result.append(at)
    return result


def _around(files: Mapping[str, bytes], year: int) -> datetime:
    """For a log without a clock: a little before what another file of the case says first."""
    for name, content in files.items():
        if not is_document(name):
            for line in body(content)[0]:
                if at := moment(line, year):
                    return at - timedelta(minutes=5)
    return DEFAULT


@dataclass(frozen=True)
class Entry:
    """One line and who wrote it."""

    at: datetime
    host: str
    ident: str
    pid: int | None
    text: str
    unit: str = "llm.service"


def entry_of(line: str, at: datetime, unit: str) -> Entry | None:
    """A journald line taken apart."""
    if not (found := JOURNAL.match(line)):
        return None
    pid = int(found["pid"]) if found["pid"] else None
    return Entry(at, found["host"], found["ident"], pid, found["text"], unit)


def short(entry: Entry) -> str:
    """`journalctl -o short`."""
    who = f"{entry.ident}[{entry.pid}]" if entry.pid else entry.ident
    stamp = f"{MONTHS[entry.at.month - 1]} {entry.at.day:02} {entry.at:%H:%M:%S}"
    return f"{stamp} {entry.host} {who}: {entry.text}"


def short_iso(entry: Entry) -> str:
    """`journalctl -o short-iso`."""
    who = f"{entry.ident}[{entry.pid}]" if entry.pid else entry.ident
    return f"{entry.at:%Y-%m-%dT%H:%M:%S}+0000 {entry.host} {who}: {entry.text}"


def journal_json(entry: Entry) -> str:
    """`journalctl -o json`: systemd's own lines name the unit in UNIT, a service's in _SYSTEMD_UNIT."""
    fields = {
        "__REALTIME_TIMESTAMP": str(int(entry.at.timestamp() * 1_000_000)),
        "_HOSTNAME": entry.host,
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": entry.ident,
        "MESSAGE": entry.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
    }
    if entry.ident == "kernel":
        return json.dumps({**fields, "_TRANSPORT": "kernel"})
    fields |= {"_PID": str(entry.pid or 1), "_TRANSPORT": "stdout"}
    if entry.ident == "systemd":
        about = re.match(r"([\w@.:\\-]+\.(?:service|scope|slice)): ", entry.text)
        fields |= {
            "_SYSTEMD_UNIT": "init.scope",
            "UNIT": about[1] if about else entry.unit,
            "_TRANSPORT": "journal",
        }
    else:
        fields["_SYSTEMD_UNIT"] = entry.unit
    return json.dumps(fields)


def docker(entry: Entry) -> str:
    """`docker logs -t`."""
    return f"{entry.at:%Y-%m-%dT%H:%M:%S}.000000000Z {entry.text}"


def compose(entry: Entry) -> str:
    """`docker compose logs`."""
    return f"{entry.ident + '-1':<10} | {entry.text}"


def cri(entry: Entry) -> str:
    """A file below /var/log/containers."""
    return f"{entry.at:%Y-%m-%dT%H:%M:%S}.000000000Z stdout F {entry.text}"


def kubectl(entry: Entry) -> str:
    """`kubectl logs --prefix`."""
    return f"[pod/{entry.ident}-7d9c6f5b8-x2lqp/{entry.ident}] {entry.text}"


Carrier = Callable[[Entry], str]
JOURNAL_FORMS: Mapping[str, Carrier] = {"short": short, "short-iso": short_iso, "json": journal_json}
CONTAINER_FORMS: Mapping[str, Carrier] = {"docker-t": docker, "compose": compose, "cri": cri, "kubectl": kubectl}


def unit_of(files: Mapping[str, bytes]) -> str:
    """The unit that the files are about."""
    for content in files.values():
        if found := re.search(rb"^Id=(\S+\.service)|systemd\[\d+\]: ([\w@-]+\.service): ", content, re.MULTILINE):
            return (found[1] or found[2]).decode()
    return "llm.service"


def host_of(files: Mapping[str, bytes]) -> str:
    """The host that the files name."""
    return next(hosts(files), "gpu-host-3")


def hosts(files: Mapping[str, bytes]) -> Iterator[str]:
    """Every host in a journald prefix."""
    seen = set()
    for name, content in files.items():
        for line in () if is_document(name) else body(content)[0]:
            if (found := JOURNAL.match(line)) and found["host"] not in seen:
                seen.add(found["host"])
                yield found["host"]
