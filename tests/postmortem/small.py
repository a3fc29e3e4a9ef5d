"""Small evidence made by hand: lines as the intake gives them, and what is read out of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from draftmark.cli.compose_why import tables
from draftmark.postmortem.diagnose import diagnose
from draftmark.postmortem.model import Kind, Line, Source, Unread, Verdict

START = 1_772_445_600.0  # 2026-03-02T10:00:00Z


def line(text: str, number: int = 1, *, at: float | None = None, source: str = "service.log", **more: Any) -> Line:
    """One line; `at` is seconds after `START`."""
    clock = {} if at is None else {"time": START + at, "clock": "wall", "stamp": f"+{at:g} s"}
    return Line(source=source, number=number, text=text, raw=text, **{**clock, **more})


def lines(*texts: str | Line, source: str = "service.log", ident: str = "") -> list[Line]:
    """Lines that follow one another; those that are made already keep everything but their place."""
    return [
        text if isinstance(text, Line) else line(text, number, source=source, ident=ident)
        for number, text in enumerate(texts, 1)
    ]


def log(*texts: str | Line, name: str = "service.log", ident: str = "") -> Source:
    """A log."""
    made = lines(*texts, source=name, ident=ident)
    return Source(name, Kind.LOG, tuple(made), len(made))


def timed(rows: Iterable[tuple[float, str]], *, name: str, ident: str = "", **more: Any) -> Source:
    """A log whose lines bear a clock."""
    made = [
        line(text, number, at=at, source=name, ident=ident, **more) for number, (at, text) in enumerate(rows, 1)
    ]
    return Source(name, Kind.LOG, tuple(made), len(made))


def journal(*rows: tuple[float, str], name: str = "journal.log") -> Source:
    """Lines of systemd's."""
    return timed(rows, name=name, ident="systemd")


def kernel(*rows: tuple[float, str], name: str = "kernel.log") -> Source:
    """Lines of the kernel's."""
    return timed(rows, name=name, ident="kernel")


def record(kind: Kind, text: str, name: str = "record") -> Source:
    """A record as text."""
    made = [line(row, number, source=name) for number, row in enumerate(text.splitlines(), 1)]
    return Source(name, kind, tuple(made), len(made))


def document(kind: Kind, content: Any, name: str = "inspect.json") -> Source:
    """A record as JSON, with the lines of its printed form."""
    made = [line(row, n, source=name) for n, row in enumerate(json.dumps(content, indent=2).splitlines(), 1)]
    return Source(name, kind, tuple(made), len(made), document=content)


def verdict(*sources: Source, unit: str | None = None, unread: Sequence[Unread] = ()) -> Verdict:
    """The answer."""
    return diagnose(sources, tables=tables(), unit=unit, unread=unread)


UNIT = "llm.service"
STARTED = (-300.0, f"Started {UNIT} - LLM server.")
KILLED = f"{UNIT}: Main process exited, code=killed, status=9/KILL"
QUIET = (-500.0, "mlx5_core 0000:a3:00.0 ens1f0: Link up")

SGLANG_START = (
    "server_args=ServerArgs(model_path='/srv/q', port=30000, tp_size=1)",
    "Load weight begin. avail mem=78.10 GB",
    "Load weight end. elapsed=31.11 s, type=LlamaForCausalLM, avail mem=62.30 GB, mem usage=15.80 GB.",
    "Memory pool end. avail mem=9.80 GB",
)
SGLANG_UP = (*SGLANG_START, "INFO:     Application startup complete.", "The server is fired up and ready to roll!")
DECODE = (
    "Decode batch, #running-req: 7, #token: 9120, token usage: 0.03, cuda graph: True, "
    "gen throughput (token/s): 711.20, #queue-req: 0, "
)
FRAME = '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 812, in event_loop_overlap'
"""A place in the scheduler's loop."""


def crash(error: str, *frames: str, head: str = "Scheduler hit an exception: ") -> tuple[str, ...]:
    """SGLang's words when its scheduler fails."""
    return (
        f"{head}Traceback (most recent call last):",
        *(frames or (FRAME,)),
        "    self.step()",
        error,
    )
