"""Hazards of the host: memory, the journal, and who else is on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.service.systemd.hazard import Hazard, Seen
from draftmark.service.systemd.timespan import seconds, span
from draftmark.service.systemd.unitfile import Assignment, Unit

_CLOSE = 0.85
_GIB = 2**30
_DEFAULT_INTERVAL_S, _DEFAULT_BURST = 30.0, 10_000


def _memory(seen: Seen) -> Iterator[Hazard]:
    used, most = max(((seen.size(name) or 0, name) for name in ("MemoryPeak", "MemoryCurrent")), default=(0, ""))
    for name, what in (
        ("MemoryMax", "the kernel kills it there"),
        ("MemoryHigh", "it is slowed down there"),
        ("MemoryLimit", "the kernel kills it there"),
    ):
        limit = seen.size(name)
        if limit and used >= _CLOSE * limit:
            yield Hazard(
                "memory-limit-close",
                f"it has used {used / _GIB:.1f} of the {limit / _GIB:.1f} GiB that it may: {what}",
                f"{seen.evidence(name)}; {most}={used}",
                f"raise {name}=, or watch the host's memory while it is tuned",
            )
    if seen.value("OOMPolicy") == "continue":
        yield Hazard(
            "oom-policy-continue",
            "when the kernel kills a worker for memory, the rest stays up and looks healthy",
            seen.evidence("OOMPolicy"),
            "OOMPolicy=stop",
        )


def _swap(seen: Seen) -> Iterator[Hazard]:
    line = seen.host.swap_total
    words = line.split() if line else []
    if len(words) > 1 and words[1] == "0":
        yield Hazard(
            "no-swap",
            "the host has no swap: where memory runs out, the kernel kills at once",
            f"/proc/meminfo: {' '.join(words)}",
            "leave room, or limit the service with MemoryMax=",
        )


def _journal(seen: Seen) -> Iterator[Hazard]:
    if seen.host.journald is None:
        return
    line = Unit.parse(seen.host.journald).last("Storage", "Journal")
    storage = line.value if line else "auto"
    if storage == "none":
        what = "the journal is kept nowhere"
    elif storage == "volatile":
        what = "the journal is lost at a reboot"
    elif storage == "auto" and seen.host.journal_folder is False:
        what = "the journal is lost at a reboot: its folder on disk is not there"
    else:
        return
    folder = "" if storage != "auto" else "; there is no /var/log/journal"
    yield Hazard(
        "journal-not-persistent",
        what,
        f"{line or 'Storage=auto (the default)'}{folder}",
        "mkdir /var/log/journal, with Storage=auto or persistent in journald.conf",
    )


def _rate_limit(seen: Seen) -> Iterator[Hazard]:
    """The unit's own limit, or else journald's. Zero in either of its two settings means that there is none."""
    own = [seen.assigned(key) for key in ("LogRateLimitIntervalSec", "LogRateLimitBurst")]
    if seen.host.journald is None and not any(own):
        return
    config = Unit.parse(seen.host.journald or ())
    pair = [
        line if line and line.value else config.last(key, "Journal")
        for line, key in zip(own, ("RateLimitIntervalSec", "RateLimitBurst"), strict=True)
    ]
    interval, burst = _interval(pair[0]), _burst(pair[1])
    if interval is None or burst is None or interval == 0 or burst == 0:
        return
    lines = "; ".join(str(line) for line in pair if line)
    yield Hazard(
        "journal-rate-limit",
        f"journald drops lines beyond {burst} in {span(interval)} (more on a large disk), and may not say so",
        lines or "RateLimitIntervalSec=30s, RateLimitBurst=10000 (the defaults)",
        "LogRateLimitIntervalSec=0 in the unit",
    )


def _interval(line: Assignment | None) -> float | None:
    if line is None or not line.value:
        return _DEFAULT_INTERVAL_S
    try:
        return seconds(line.value)
    except ValueError:
        return None


def _burst(line: Assignment | None) -> int | None:
    if line is None or not line.value:
        return _DEFAULT_BURST
    return int(line.value) if line.value.isdecimal() else None


def _gpu(seen: Seen) -> Iterator[Hazard]:
    if not seen.host.unit_pids and seen.value("ActiveState") == "active":
        return  # whose they are could not be told
    for process in seen.host.gpu:
        if process.pid not in seen.host.unit_pids:
            yield Hazard(
                "gpu-shared",
                f"another process is on the GPU: {process.name} (pid {process.pid})",
                f"nvidia-smi: {process.line}",
                "measure when it is gone: it takes memory and time",
            )


HOST = (_memory, _swap, _journal, _rate_limit, _gpu)
