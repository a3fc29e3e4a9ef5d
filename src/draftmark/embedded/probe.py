"""Whether an engine runs here: asked of the CPU, then of the engine in a process of its own. The answer is kept."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .pins import EnginePin

_CPUINFO = Path("/proc/cpuinfo")
_LIBRARIES = Path("/etc/ld.so.cache")  # rewritten whenever a shared library is installed
_LIMIT_S = 60.0


def missing_cpu_flags(pin: EnginePin, cpuinfo: Path = _CPUINFO) -> tuple[str, ...]:
    """Instruction sets that the engine was compiled for and this CPU lacks; empty where that cannot be read."""
    flags = _cpu_flags(cpuinfo)
    return tuple(flag for flag in pin.cpu_flags if flags and flag not in flags)


def problem(pin: EnginePin, command: Sequence[str], env: Mapping[str, str], root: Path) -> str | None:
    """Why the engine does not run here; None if it does. Kept until the libraries, the CPU or Python change."""
    record, key = root / "probes.json", _fingerprint(pin)
    known = _read(record)
    answer = known.get(key)
    if isinstance(answer, str):
        return answer or None
    found, conclusive = _ask(command, env)
    if conclusive:
        with suppress(OSError):
            fresh = record.with_name(f"{record.name}.{os.getpid()}")
            fresh.write_text(json.dumps({**known, key: found}), encoding="utf-8")
            fresh.replace(record)
    return found or None


def _ask(command: Sequence[str], env: Mapping[str, str]) -> tuple[str, bool]:
    """What `--version` complains about, empty if nothing, and whether that would be the answer again."""
    try:
        done = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **env},
            timeout=_LIMIT_S,
            check=False,
        )
    except OSError as error:
        return str(error), True
    except subprocess.TimeoutExpired:
        return f"no answer to --version within {_LIMIT_S:.0f} s", False
    if done.returncode == 0:
        return "", True
    lines = (done.stderr or done.stdout).strip().splitlines()
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        because = ": this CPU lacks an instruction that it uses" if name == "SIGILL" else ""
        return f"it died of {name}{because}", name in ("SIGILL", "SIGSEGV", "SIGABRT")
    return lines[-1][:300] if lines else f"it ended with status {done.returncode}", True


def _fingerprint(pin: EnginePin) -> str:
    """Changes with whatever could change the answer."""
    try:
        state = _LIBRARIES.stat()
        libraries = f"{state.st_mtime_ns}-{state.st_size}"
    except OSError:
        libraries = "-"
    parts = (pin.wheel.sha256, sys.version, sys.executable, libraries, " ".join(sorted(_cpu_flags(_CPUINFO))))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """Flags of the first CPU; the others of a machine are the same."""
    try:
        with cpuinfo.open("rb") as file:
            head = file.read(16384).decode(errors="replace")
    except OSError:
        return frozenset()
    for line in head.splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _read(record: Path) -> dict[str, object]:
    try:
        answers = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return answers if isinstance(answers, dict) else {}
