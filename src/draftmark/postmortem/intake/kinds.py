"""What a source is, by its content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from draftmark.postmortem.intake.clock import Calendar
from draftmark.postmortem.intake.head import Head
from draftmark.postmortem.intake.structured import decode, entry_texts
from draftmark.postmortem.model import Kind

NOT_KNOWN_JSON = "JSON, but not docker's or kubectl's"

_CONTROL = bytes(code for code in range(1, 32) if code not in b"\t\n\r\x1b\b\f") + b"\x7f"
_SHOW_KEYS = frozenset(
    [
        "Id",
        "Names",
        "ActiveState",
        "SubState",
        "LoadState",
        "Result",
        "ExecMainCode",
        "ExecMainStatus",
        "ExecMainPID",
        "MainPID",
        "Restart",
        "NRestarts",
        "Type",
        "KillMode",
        "KillSignal",
        "OOMPolicy",
        "MemoryMax",
        "MemoryPeak",
        "MemoryCurrent",
        "TimeoutStopUSec",
        "TimeoutStartUSec",
        "ControlGroup",
        "FragmentPath",
        "UnitFileState",
        "InvocationID",
        "SendSIGKILL",
        "FinalKillSignal",
        "StatusErrno",
    ]
)
_SHOW_DECIDING = frozenset(
    ["Id", "ActiveState", "SubState", "Result", "ExecMainStatus", "LoadState", "MainPID", "ExecMainCode"]
)
_KEY_VALUE = re.compile(r"([A-Z][A-Za-z0-9]{1,60})=")
_METRIC = re.compile(
    r"[a-zA-Z_:][a-zA-Z0-9_:]{1,200}(?:\{[^}]{0,4000}\})? [-+0-9.eE]{0,40}(?:NaN|Inf)?(?: \d{1,20})?\s*\Z"
)
_METRIC_COMMENT = re.compile(r"# (?:HELP|TYPE) [a-zA-Z_:]")
_DESCRIBE = re.compile(
    r"(?:Name|Namespace|Node|Status|Containers|Events|Labels|Annotations|IP|Conditions|Start Time|QoS Class|"
    r"Volumes|Tolerations|Service Account|Priority|Reason|Message|Controlled By|Init Containers|Roles|"
    r"Taints|Capacity):(?:\s|$)"
)
_SACCT = re.compile(r"\s*(?:JobID|JobIDRaw|JobName|User|Account|Partition|State)\b[\s|]")
_SACCT_COLUMNS = re.compile(
    r"\b(?:JobID(?:Raw)?|JobName|State|ExitCode|DerivedExitCode|MaxRSS|ReqMem|Elapsed|Timelimit|NodeList)\b"
)
_PROCESSES = re.compile(
    r"\s*(?:USER\s|UID\s|F\s+S\s|S\s+UID\s)?(?:\S+\s{1,20}){0,3}PID\s.{0,400}\b(?:COMMAND|CMD|ARGS|COMM)\b|"
    r"\|\s*(?:NVIDIA-SMI|Processes:)|\+-{10,}\+?\Z|# gpu\s+pid|\s*PID\s+(?:PPID|USER)\s"
)
_ROW = re.compile(r"\s{0,20}(?:\S{1,64}\s{1,20}){0,3}\d{1,10}\s|\s{0,20}\d{1,10}$|[|+#]")
_NVIDIA_SMI = re.compile(r"NVIDIA-SMI \d|\|\s*Processes:|No running processes found")


def is_text(head: bytes) -> bool:
    """Whether bytes read like text: NULs aside (a log truncated in place), hardly any control characters."""
    seen = head.replace(b"\x00", b"")
    if not seen:
        return False
    controls = len(seen) - len(seen.translate(None, _CONTROL))
    if controls > 0.02 * len(seen) + 2:
        return False
    if len(seen) < 0.5 * len(head) and not is_mostly_after_nuls(head):
        return False
    return seen.decode("utf-8", "replace").count("\ufffd") <= 0.25 * len(seen) + 3


def is_mostly_after_nuls(head: bytes) -> bool:
    """NULs in one run at the start, and text behind it."""
    return head.lstrip(b"\x00").count(0) < 0.1 * max(len(head.lstrip(b"\x00")), 1)


def json_kind(document: Any) -> Kind | None:
    """Of a parsed document; None when it is neither docker's nor kubectl's."""
    if isinstance(document, Mapping):
        return _object_kind(document)
    if isinstance(document, list) and document and all(isinstance(item, Mapping) for item in document):
        kinds = {_object_kind(item) for item in document}
        return kinds.pop() if len(kinds) == 1 else None
    return None


def _object_kind(entry: Mapping[str, Any]) -> Kind | None:
    if isinstance(entry.get("State"), Mapping) and ("HostConfig" in entry or "Config" in entry or "Image" in entry):
        return Kind.DOCKER_INSPECT
    if "apiVersion" in entry and isinstance(entry.get("kind"), str):
        return Kind.KUBECTL_JSON
    if entry.get("kind") in ("Pod", "PodList", "List", "EventList", "Event"):
        return Kind.KUBECTL_JSON
    return None


def is_entry(item: object) -> bool:
    """Whether an object is one record of a log."""
    return isinstance(item, Mapping) and entry_texts(item, Head(Calendar(0.0))) is not None


def looks_like_document(head: str) -> bool:
    """Whether text could be one JSON document over several lines (or one line that is no log record)."""
    start = head.lstrip("\ufeff \t\r\n")
    if start[:1] not in ("{", "["):
        return False
    first, _, rest = start.partition("\n")
    entry = decode(first.strip())
    if isinstance(entry, dict):
        return not rest.strip() and not is_entry(entry)
    after = start[1:].lstrip()[:1]
    return after in ('"', "{", "[", "}", "]") or (entry is not None and not rest.strip())


def text_kind(lines: list[str]) -> Kind:
    """By the first lines of a text that is no JSON document; blank ones left out."""
    if _is_show(lines):
        return Kind.SYSTEMCTL_SHOW
    if _is_metrics(lines):
        return Kind.METRICS
    if _is_describe(lines):
        return Kind.KUBECTL_DESCRIBE
    if any(_SACCT.match(line) and len(_SACCT_COLUMNS.findall(line[:2000])) >= 3 for line in lines[:5]):
        return Kind.SACCT
    if _is_table(lines):
        return Kind.PROCESSES
    return Kind.LOG


def _is_show(lines: list[str]) -> bool:
    keys = [match[1] for line in lines if (match := _KEY_VALUE.match(line))]
    known = set(keys) & _SHOW_KEYS
    return len(keys) >= 0.7 * len(lines) and bool(known & _SHOW_DECIDING) and (len(known) > 1 or len(lines) <= 2)


def _is_metrics(lines: list[str]) -> bool:
    metrics = sum(1 for line in lines if _METRIC.match(line[:5000]) or _METRIC_COMMENT.match(line))
    return metrics >= 0.8 * len(lines)


def _is_describe(lines: list[str]) -> bool:
    found = {match[0].strip() for line in lines if (match := _DESCRIBE.match(line))}
    return any(line.startswith("Name:") for line in lines[:5]) and len(found) >= 3


def _is_table(lines: list[str]) -> bool:
    """Of processes, all of it: logs may begin with what `nvidia-smi` printed."""
    if any(_NVIDIA_SMI.search(line[:500]) for line in lines[:8]):
        return sum(line.lstrip()[:1] in ("|", "+") for line in lines) >= 0.7 * len(lines)
    rows = sum(_ROW.match(line) is not None for line in lines[1:])
    return _PROCESSES.match(lines[0][:1000]) is not None and rows >= 0.7 * (len(lines) - 1)
