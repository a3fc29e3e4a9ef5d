"""pins.toml as frozen dataclasses: which files, which hashes, what for."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class FilePin:
    """One file that is kept.

    Attributes:
        path: Its path in the wheel, and below the directory that keeps it.
        size_bytes: Its exact size.
        sha256: Its content, in hexadecimal.
    """

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class WheelPin:
    """One wheel of the package index.

    Attributes:
        package: Its name there.
        version: The one version that was tried.
        purpose: What it is, for people.
        file: The wheel's file name.
        size_bytes: The wheel's exact size.
        sha256: The wheel's content, in hexadecimal.
        pip_tags: Words that make pip take a wheel of another Python than this one.
    """

    package: str
    version: str
    purpose: str
    file: str
    size_bytes: int
    sha256: str
    pip_tags: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """As pip is asked for it."""
        return f"{self.package}=={self.version}"

    def __str__(self) -> str:
        return f"{self.package} {self.version} ({self.purpose}, {megabytes(self.size_bytes)})"


@dataclass(frozen=True, slots=True)
class EnginePin:
    """One engine.

    Attributes:
        name: As `--engine` names it.
        python: Whether launcher.py starts it; else it is an executable.
        wheel: Where it comes from.
        files: What is unpacked.
        cpu_flags: Instruction sets it was compiled for, as /proc/cpuinfo names them.
        hint: What to try when it does not run.
        system: `platform.system()` it is for.
        machine: `platform.machine()` it is for.
        executable: Path of the executable among `files`; empty for a Python package.
        libraries: Path of the directory of its shared libraries; empty for a Python package.
    """

    name: str
    python: bool
    wheel: WheelPin
    files: tuple[FilePin, ...]
    cpu_flags: tuple[str, ...]
    hint: str
    system: str
    machine: str
    executable: str = ""
    libraries: str = ""

    @property
    def directory(self) -> str:
        """Its directory in the cache."""
        return f"engines/{self.wheel.package}-{self.wheel.version}"


@dataclass(frozen=True, slots=True)
class ModelPin:
    """The model.

    Attributes:
        name: Its name, and its directory's.
        wheel: Where the quantised weights come from.
        quantised: The weights in the wheel; removed when `result` is made.
        result: The weights that are served.
        extra: Further files of the wheel that are kept: the licence.
    """

    name: str
    wheel: WheelPin
    quantised: FilePin
    result: FilePin
    extra: tuple[FilePin, ...]

    @property
    def directory(self) -> str:
        """Its directory in the cache."""
        return f"models/{self.name}"

    @property
    def files(self) -> tuple[FilePin, ...]:
        """What is kept."""
        return (self.result, *self.extra)


@dataclass(frozen=True, slots=True)
class ConverterPin:
    """The packages that turn the quantised weights into the served ones.

    Attributes:
        wheel: The pinned one.
        requires: What it needs beside it, in any version the index has: the result's hash is checked.
        installed_bytes: Room for all of them.
    """

    wheel: WheelPin
    requires: tuple[str, ...]
    installed_bytes: int


@dataclass(frozen=True, slots=True)
class Pins:
    """Everything that may be fetched, engines in order of preference."""

    engines: tuple[EnginePin, ...]
    model: ModelPin
    converter: ConverterPin


@cache
def load_pins(path: Path | None = None) -> Pins:
    """The pins of this version of Draftmark, or those of another file."""
    source = files(__package__).joinpath("pins.toml") if path is None else path
    data = tomllib.loads(source.read_text(encoding="utf-8"))
    model, converter = data["model"], data["converter"]
    return Pins(
        engines=tuple(_engine(entry) for entry in data["engines"]),
        model=ModelPin(
            name=model["name"],
            wheel=_wheel(model),
            quantised=_file(model["quantised"]),
            result=_file(model["result"]),
            extra=tuple(_file(entry) for entry in model["files"]),
        ),
        converter=ConverterPin(
            wheel=_wheel(converter),
            requires=tuple(converter["requires"]),
            installed_bytes=converter["installed_bytes"],
        ),
    )


def megabytes(size_bytes: int) -> str:
    """`98 MB`, decimal, as package indexes show sizes."""
    return f"{size_bytes / 1e6:.0f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"


def _engine(entry: dict[str, Any]) -> EnginePin:
    return EnginePin(
        name=entry["name"],
        python=entry["kind"] == "python",
        wheel=_wheel(entry),
        files=tuple(_file(each) for each in entry["files"]),
        cpu_flags=tuple(entry["cpu_flags"]),
        hint=entry["hint"],
        system=entry["system"],
        machine=entry["machine"],
        executable=entry.get("executable", ""),
        libraries=entry.get("libraries", ""),
    )


def _wheel(entry: dict[str, Any]) -> WheelPin:
    return WheelPin(
        package=entry["package"],
        version=entry["version"],
        purpose=entry["purpose"],
        file=entry["wheel"],
        size_bytes=entry["wheel_bytes"],
        sha256=entry["wheel_sha256"],
        pip_tags=tuple(entry.get("pip_tags", ())),
    )


def _file(entry: dict[str, Any]) -> FilePin:
    return FilePin(path=entry["path"], size_bytes=entry["bytes"], sha256=entry["sha256"])
