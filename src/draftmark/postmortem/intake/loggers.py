"""Prefixes of the engines' own loggers: SGLang, vLLM, llama.cpp, TensorRT-LLM, torch, Ray, NCCL, uvicorn, glog."""

from __future__ import annotations

import re

from draftmark.postmortem.intake.clock import epoch, fraction, zone_offset
from draftmark.postmortem.intake.head import LEVELS, Head
from draftmark.postmortem.intake.layer import Layer

_HMS = r"(\d\d:\d\d:\d\d)"
_WORD = r"(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)"


def _bracket_date(match: re.Match[str], head: Head) -> int:
    stamp, digits, zone, actor = match.groups()
    seconds: float | None = epoch(stamp)
    if seconds is None:
        return -1
    if digits or zone:
        seconds += fraction(digits) - zone_offset(zone and zone.strip())
        stamp += (digits or "") + (zone or "")
    head.wall(seconds, stamp)
    if actor:
        head.act(actor[1:])
    return match.end()


def _date(head: Head, year: str | None, day: tuple[str, str], hms: str, digits: str | None) -> None:
    """A date that may leave out its year."""
    month, number = day
    stamp = f"{year or ''}{month}-{number} {hms}{digits or ''}"
    if year:
        seconds = epoch(f"{year[:4]}-{month:0>2}-{number} {hms}")
    else:
        seconds = head.calendar.yearless(int(month) if 1 <= int(month) <= 12 else None, int(number), hms)
    if seconds is not None:
        head.wall(seconds + fraction(digits), stamp, dated=bool(year))


def _vllm(match: re.Match[str], head: Head) -> int:
    head.level = LEVELS[match[1]]
    _date(head, match[2], (match[3], match[4]), match[5], match[6])
    return match.end()


def _process(match: re.Match[str], head: Head) -> int:
    name, pid, ip = match[1], match[2], match[3]
    words = [name] if name else []
    words += [f"pid={pid}"] if pid else []
    words += [f"ip={ip}"] if ip else []
    head.act(" ".join(words))
    head.writer("", pid, ip or "")
    return match.end()


def _ray(match: re.Match[str], head: Head) -> int:
    """Ray names an actor by its class, a task, or what the actor calls itself: with parentheses of its own."""
    name, pid, fields = match[1], match[2], match[3]
    depth = 0
    for char in name:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return -1
    if depth:
        return -1
    told = [field.strip() for field in fields.split(",") if field]
    head.act(" ".join((name, f"pid={pid}", *told)))
    head.writer("", pid, next((field[3:] for field in told if field.startswith("ip=")), ""))
    return match.end()


def _rank(match: re.Match[str], head: Head) -> int:
    head.act(match[1].replace(" ", "").replace("_", "").lower() + match[2])
    return match.end()


def _glog(match: re.Match[str], head: Head) -> int:
    head.level = LEVELS[match[1]]
    _date(head, match[2], (match[3], match[4]), match[5], match[6])
    return match.end()


def _clock(match: re.Match[str], head: Head) -> int:
    minutes, seconds, milli, micro = (int(match[i]) for i in (1, 2, 3, 4))
    head.relative(minutes * 60 + seconds + milli / 1e3 + micro / 1e6, match[0].split(" ")[0])
    head.level = LEVELS[match[5]]
    return match.end()


def _word(match: re.Match[str], head: Head) -> int:
    head.level = LEVELS[match[1]]
    return match.end()


def _tensorrt(match: re.Match[str], head: Head) -> int:
    if match[1]:
        head.act(f"rank{match[1]}")
    head.level = LEVELS.get(match[2] or "", head.level)
    return match.end()


def _american(match: re.Match[str], head: Head) -> int:
    seconds = epoch(f"{match[3]}-{match[1]}-{match[2]} {match[4]}")
    if seconds is None:
        return -1
    head.wall(float(seconds), match[0].strip("[] "))
    return match.end()


def _nccl(match: re.Match[str], head: Head) -> int:
    head.writer("", match[2], match[1])
    head.level = "W" if match[3] == "WARN" else "I"
    return match.start(4)


def _gin(match: re.Match[str], head: Head) -> int:
    seconds = epoch(f"{match[1]} {match[2]}")
    if seconds is not None:
        head.wall(float(seconds), f"{match[1]} {match[2]}")
    return -1  # the text is the table that follows, name included


BRACKET_DATE = Layer(
    r"\[(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d)([.,]\d{1,9})?( ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"((?: [A-Za-z_]{1,16}\d{1,5}){0,8})(?: [^\[\]]{0,60})?\](?: |$)?",
    _bracket_date,
)
VLLM = Layer(
    _WORD
    + r" (\d{4}-)?(\d\d)-(\d\d) "
    + _HMS
    + r"([.,]\d{1,9})? ?(?:\[[^\[\]]{1,200}\]|[\w./-]{1,200}:\d{1,6}\])(?: |$)?",
    _vllm,
)
UVICORN = Layer(_WORD + r":(?: {2,6}|(?<=CRITICAL:) )(?! )", _word)
BASIC = Layer(_WORD + r":[A-Za-z_][\w.]{0,100}:", _word)
BRACKET_WORD = Layer(r"\[" + _WORD + r"\]:? ?", _word)
PROCESS = Layer(
    r"\((?:([A-Za-z_][\w.:-]{0,63}(?: [\w.:-]{1,40})?) )?pid=(\d{1,10})(?:, ?ip=([\w.:-]{1,64}))?\)(?: |$)?",
    _process,
)
RAY = Layer(
    r"\(([A-Za-z_<].{0,300}?) pid=(\d{1,10})((?:, ?\w{1,20}=[^\s,()]{1,64}){0,6})\)(?: |$)?",
    _ray,
)
RAYLET = Layer(
    r"\((raylet|autoscaler|gcs_server)()(?:, ?ip=([\w.:-]{1,64})| [^()]{1,20})?\)(?: |$)?",
    _process,
)
RANK = Layer(r"\[([Rr]ank ?|default_?|trainer_?)(\d{1,6})\]:(?: |$)?", _rank)
C10D = Layer(
    r"\[([EWIFV])(20\d\d(?=\d{4}))?(\d{1,2})(\d\d) "
    + _HMS
    + r"(\.\d{1,9})?(?: {1,8}\d{1,10})? [^\[\]\s]{1,200}:\d{1,6}\](?: |$)?",
    _glog,
)
GLOG = Layer(
    r"([EWIF])(20\d\d)?(\d\d)(\d\d) " + _HMS + r"(\.\d{1,9})?(?: {1,8}\d{1,10}){1,2} "
    r"[^\[\]\s]{1,200}:\d{1,6}\](?: |$)?",
    _glog,
)
LLAMA = Layer(r"(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3}) ([IWED])(?: {1,40}|$)", _clock)
TENSORRT = Layer(
    r"\[(?:TensorRT-LLM|TRT-LLM|TensorRT)\] ?(?:\[RANK (\d{1,6})\] ?)?"
    r"(?:\[(TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL|[VDIWEF])\] ?)?",
    _tensorrt,
)
AMERICAN = Layer(r"\[(\d\d)/(\d\d)/(\d{4})-" + _HMS + r"\] ?", _american)
NCCL = Layer(
    r"([\w.-]{1,64}):(\d{1,10}):\d{1,10} \[\d{1,4}\] (?:[^\s:]{1,200}:\d{1,6} )?(?=NCCL (WARN|INFO))()",
    _nccl,
)
GIN = Layer(r"\[GIN\] (\d{4}/\d\d/\d\d) - " + _HMS + r" \|", _gin)
