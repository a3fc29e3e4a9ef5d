"""Where `bench` leaves files: a page, and other tools' forms. Places are looked at before the load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from draftmark.errors import BadInputError, StorageError, UsageError
from draftmark.load.distributions import distributions
from draftmark.load.exports import About, sglang_result, vllm_result
from draftmark.load.journal import Head, Measured
from draftmark.load.measurement import belonging
from draftmark.load.result import measurement_of, together
from draftmark.load.slo import Slo, goodput

_FORMS = {"vllm": "vllm.json", "sglang": "sglang.jsonl"}
_PAGE = b"<!doctype html"


@dataclass(frozen=True, slots=True)
class Export:
    """Another tool's form, and the file for it."""

    form: str
    path: Path


def export(text: str) -> Export:
    """`vllm`, `sglang`, or either with `=FILE`.

    Raises:
        UsageError: It is something else.
    """
    form, equals, name = text.partition("=")
    if form not in _FORMS or (equals and not name):
        raise UsageError(
            f"{text[:60]!r} is no form to export", next_step="--export vllm=FILE or --export sglang=FILE"
        )
    return Export(form, Path(name or _FORMS[form]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is to be written at the end.

    Attributes:
        html: The page; one that is there already is replaced.
        exports: SGLang's is appended to, as its own tool does; vLLM's must not be there.
    """

    html: Path | None = None
    exports: tuple[Export, ...] = ()

    def check(self, keys: Sequence[str]) -> None:
        """Whether all of it can be written: to be told before a load.

        Args:
            keys: Of each measurement, `copy@4`, as often as it is repeated.

        Raises:
            BadInputError: Some of it cannot.
        """
        if self.html is not None:
            _look_at(self.html, replaced=_is_page(self.html))
        for wanted in self.exports:
            for path in set(_places(wanted, keys)):
                _look_at(path, replaced=wanted.form == "sglang" and path.is_file())

    def write(self, head: Head, measured: Sequence[Measured], document: dict[str, Any]) -> list[Path]:
        """Write it; the files, in order.

        Raises:
            StorageError: The disk is full, or the place was lost meanwhile.
        """
        written: list[Path] = []
        if self.html is not None:
            from draftmark.report.bench_html import render_bench

            drawn = [_drawn(runs) for runs in together(measured)]
            _put(self.html, render_bench(document, drawn).encode())
            written.append(self.html)
        keys = [f"{one.ending.workload}@{one.ending.concurrency}" for one in measured]
        for wanted in self.exports:
            for one, path in zip(measured, _places(wanted, keys), strict=True):
                made = _exported(wanted.form, head, one)
                _put(path, msgspec.json.encode(made) + b"\n", append=wanted.form == "sglang")
                written += [path] * (path not in written)
        return written


def _places(wanted: Export, keys: Sequence[str]) -> list[Path]:
    """SGLang's form has a line for each measurement; vLLM's a file, named after it where there are several."""
    path = wanted.path
    if wanted.form == "sglang" or len(keys) == 1:
        return [path] * len(keys)
    seen: dict[str, int] = {}
    out = []
    for key in keys:
        seen[key] = seen.get(key, 0) + 1
        run = f"-run{seen[key]}" if keys.count(key) > 1 else ""
        out.append(path.with_name(f"{path.stem}-{key}{run}{path.suffix}"))
    return out


def _exported(form: str, head: Head, one: Measured) -> dict[str, object]:
    m = measurement_of(one)
    records = belonging(one.records, m.workload, m.concurrency)
    slo = Slo(**{f"{name}_ms": limit for name, limit in head.limits_ms.items()}) if head.limits_ms else None
    arrival = one.ending.arrival or {}
    rate, burstiness = arrival.get("rate_req_s"), arrival.get("burstiness")
    about = About(
        api=head.api,
        engine=head.engine,
        model=head.model,
        date=_date(head.started_at),
        request_rate=float(rate) if rate is not None else None,
        burstiness=float(burstiness) if burstiness is not None else 1.0,
        goodput_req_s=goodput(records, slo).req_s if slo is not None else None,
    )
    return (vllm_result if form == "vllm" else sglang_result)(records, m, about)


def _date(iso: str | None) -> str:
    """As vLLM has it, in local time."""
    try:
        return datetime.fromisoformat(iso or "").astimezone().strftime("%Y%m%d-%H%M%S")
    except ValueError:
        return ""


def _drawn(runs: Sequence[Measured]) -> dict[str, Any]:
    """Of repetitions: distributions of all requests, the course of the first run."""
    m = measurement_of(runs[0])
    first = distributions(belonging(runs[0].records, m.workload, m.concurrency), m)
    if len(runs) == 1:
        return first
    whole = Measured(records=tuple(r for run in runs for r in run.records), ending=runs[0].ending)
    pooled = measurement_of(whole)
    return {**distributions(belonging(whole.records, m.workload, m.concurrency), pooled), "course": first["course"]}


# --- files ------------------------------------------------------------------------------------------------


def _look_at(path: Path, *, replaced: bool) -> None:
    because = ""
    if path.is_dir():
        because = "it is a directory"
    elif not path.parent.is_dir():
        because = f"there is no directory {path.parent}"
    elif path.exists() and not replaced:
        because = "it exists"
    elif replaced:
        because = "" if os.access(path, os.W_OK) else "you may not write there"
    else:
        because = _untried(path)
    if because:
        raise BadInputError(f"{path} cannot be written: {because}", next_step="name another file")


def _untried(path: Path) -> str:
    """Why a new file cannot be made; some directories let everybody write and take no file."""
    try:
        path.open("xb").close()
        path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_PAGE)).lower() == _PAGE
    except OSError:
        return False


def _put(path: Path, data: bytes, *, append: bool = False) -> None:
    try:
        with path.open("ab" if append else "wb") as file:
            file.write(data)
    except OSError as error:
        raise StorageError(
            f"{path} could not be written",
            evidence=(f"{error.strerror} (errno {error.errno})",),
            next_step="make room; it can be made of what --output kept: draftmark bench --from FILE",
        ) from None
