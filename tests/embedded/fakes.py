"""A tiny package index of fake wheels, pins that fit it, a cache. pip is real; nothing leaves the machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from draftmark.embedded.pins import ConverterPin, EnginePin, FilePin, ModelPin, Pins, WheelPin
from draftmark.embedded.provision import Embedded

XLLAMACPP = '''
"""Stands in for the real package: shows what it was given, then loads for as long as it is told to."""
import json, sys, types

__version__ = "1.0"
BUILD_INFO = {"commit": "fake", "compiler": "cc", "build_target": "here"}


class common_speculative_type:
    COMMON_SPECULATIVE_TYPE_NONE = 0
    COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE = 1
    COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE = 6
    COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K4V = 8


def nested():
    return types.SimpleNamespace()


class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch, self.sampling = nested(), nested(), nested(), nested()
        self.speculative = nested()
        self.speculative.ngram_simple, self.speculative.draft = nested(), nested()
        self.speculative.draft.mparams = nested()


class Server:
    def __init__(self, params):
        print(json.dumps(params, default=vars), file=sys.stderr, flush=True)
        if params.model.path == "broken":
            raise RuntimeError("Failed to init server, please check the input params.")
        if params.model.path == "slow":
            sum(range(10**12))  # minutes, and the interpreter's lock is held, as the real one holds it
'''

NUMPY = """
float32 = "f4"


def dtype(kind):
    return kind


class empty:
    def __init__(self, shape, dtype):
        self.shape, self.rows = shape, [None] * shape[0]

    def __setitem__(self, where, values):
        self.rows[where] = values
"""

GGUF = """
import sys, types

import numpy


class GGUFValueType:
    ARRAY = 9


class LlamaFileType:
    ALL_F32 = 0


class Rows:
    shape = (2, 3)

    def __init__(self, rows):
        self.rows = rows

    def reshape(self, *shape):
        return self

    def __getitem__(self, where):
        return self.rows[where]


class GGUFReader:
    def __init__(self, source):
        text = open(source, "rb").read()
        if text.startswith(b"die"):
            sys.exit(text.decode())
        name = types.SimpleNamespace(parts=[b"llama"])
        self.fields = {"GGUF.version": None, "general.architecture": name}
        self.tensors = [
            types.SimpleNamespace(
                name="t", shape=[3, 2], n_elements=6, data=Rows([text[:3], text[3:]]), tensor_type=3
            )
        ]


class GGUFWriter:
    def __init__(self, target, architecture):
        self.file = open(target, "wb")
        self.file.write(architecture.encode())

    def add_file_type(self, kind):
        self.file.write(b"%d" % kind)

    def add_tensor_info(self, name, shape, dtype, size):
        self.file.write(repr((name, shape, dtype, size)).encode())

    def write_header_to_file(self):
        pass

    write_kv_data_to_file = write_ti_data_to_file = write_header_to_file

    def write_tensor_data(self, values):
        assert isinstance(values, numpy.empty)
        self.file.write(b"".join(values.rows))

    def close(self):
        self.file.close()


class quants:
    @staticmethod
    def dequantize(rows, kind):
        return [bytes(row).upper() for row in rows]
"""

SERVER = '#!/bin/sh\necho "version: 1 (fake)" >&2\n'
CONVERTED = b"llama0" + repr(("t", [2, 3], "f4", 24)).encode() + b"ABCDEF"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_pin(path: str, content: bytes) -> FilePin:
    return FilePin(path=path, size_bytes=len(content), sha256=sha256(content))


@dataclass
class Index:
    """The fake index, the pins that fit it, and the cache that they fill."""

    directory: Path
    cache: Path
    pins: Pins

    @property
    def root(self) -> Path:
        return self.cache / "embedded"

    def wheel(self, name: str, members: dict[str, bytes]) -> WheelPin:
        """Put a wheel on the index."""
        stem = f"{name}-1.0"
        path = self.directory / f"{stem}-py3-none-any.whl"
        members = {
            **members,
            f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
            f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{member},,\n" for member in members)
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in members.items():
                archive.writestr(zipfile.ZipInfo(member), content)
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/RECORD"), record)
        content = path.read_bytes()
        return WheelPin(name, "1.0", f"a fake {name}", path.name, len(content), sha256(content))

    def python_engine(self, source: str = XLLAMACPP, *, name: str = "xllamacpp") -> EnginePin:
        """An engine that launcher.py starts."""
        members = {"xllamacpp/__init__.py": source.encode()}
        return EnginePin(
            name=name,
            python=True,
            wheel=self.wheel(f"fake_{name}", members),
            files=tuple(file_pin(*member) for member in members.items()),
            cpu_flags=(),
            hint="install libfake",
            system="Linux",
            machine=os.uname().machine,
        )

    def executable_engine(self, source: str = SERVER) -> EnginePin:
        """An engine that is an executable."""
        members = {"fake/bin/llama-server": source.encode(), "fake/lib/libfake.so": b"library"}
        return replace(
            self.python_engine(name="llama-server"),
            python=False,
            wheel=self.wheel("fake_server", members),
            files=tuple(file_pin(*member) for member in members.items()),
            executable="fake/bin/llama-server",
            libraries="fake/lib",
        )

    def hand_over(self, *names: str) -> None:
        """Copy wheels to where a user without an index puts them; all of them if none is named."""
        (self.root / "downloads").mkdir(parents=True, exist_ok=True)
        for path in self.directory.iterdir():
            if not names or path.name.split("-")[0] in names:
                shutil.copy(path, self.root / "downloads")


@dataclass
class Recorder:
    """A progress that writes everything down."""

    steps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    advanced: dict[str, list[int]] = field(default_factory=dict)

    def step(self, name: str, total_bytes: int | None) -> None:
        self.steps.append(name)

    def advance(self, done_bytes: int) -> None:
        self.advanced.setdefault(self.steps[-1], []).append(done_bytes)

    def done(self, note: str) -> None:
        self.notes.append(note)


def build_index(directory: Path, cache: Path) -> Index:
    directory.mkdir()
    empty = Pins((), None, None)  # type: ignore[arg-type]  # filled in the lines below
    index = Index(directory, cache, empty)
    weights, licence = b"abcdef", b"do as you like"
    members = {"fake_model/q.gguf": weights, "fake_model-1.0.dist-info/LICENSE": licence}
    index.wheel("fake_numpy", {"numpy.py": NUMPY.encode()})
    index.pins = Pins(
        engines=(index.python_engine(), index.executable_engine()),
        model=ModelPin(
            name="fake-f32",
            wheel=index.wheel("fake_model", members),
            quantised=file_pin("fake_model/q.gguf", weights),
            result=file_pin("fake.gguf", CONVERTED),
            extra=(file_pin("fake_model-1.0.dist-info/LICENSE", licence),),
        ),
        converter=ConverterPin(index.wheel("fake_gguf", {"gguf.py": GGUF.encode()}), ("fake_numpy>=1",), 1000),
    )
    return index


def use(index: Index, patch: pytest.MonkeyPatch, *, find_links: Path | None = None) -> None:
    """Point pip and Draftmark at it, by the environment only, as a user would."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(find_links or index.directory))
    patch.setenv("DRAFTMARK_CACHE", str(index.cache))


@dataclass
class Filled:
    """A cache that was filled once, through pip, and what that showed."""

    index: Index
    ready: Embedded
    seen: Recorder


def pins_as_toml(pins: Pins) -> str:
    """The pins in the form of pins.toml, for a process of its own."""

    def quoted(value: object) -> str:
        return json.dumps(value)

    def files(entries: tuple[FilePin, ...]) -> str:
        return "[" + ", ".join(one(entry) for entry in entries) + "]"

    def one(entry: FilePin) -> str:
        return f"{{ path = {quoted(entry.path)}, bytes = {entry.size_bytes}, sha256 = {quoted(entry.sha256)} }}"

    def wheel(pin: WheelPin) -> list[str]:
        return [
            f"package = {quoted(pin.package)}",
            f"version = {quoted(pin.version)}",
            f"purpose = {quoted(pin.purpose)}",
            f"wheel = {quoted(pin.file)}",
            f"wheel_bytes = {pin.size_bytes}",
            f"wheel_sha256 = {quoted(pin.sha256)}",
            f"pip_tags = {quoted(list(pin.pip_tags))}",
        ]

    lines: list[str] = []
    for engine in pins.engines:
        lines += ["[[engines]]", f"name = {quoted(engine.name)}", *wheel(engine.wheel), "cpu_flags = []"]
        lines += [f"kind = {quoted('python' if engine.python else 'executable')}", f"files = {files(engine.files)}"]
        lines += [f"{key} = {quoted(getattr(engine, key))}" for key in ("hint", "system", "machine")]
        lines += [f"{key} = {quoted(getattr(engine, key))}" for key in ("executable", "libraries")]
    model = pins.model
    lines += ["[model]", f"name = {quoted(model.name)}", *wheel(model.wheel), f"files = {files(model.extra)}"]
    lines += [f"quantised = {one(model.quantised)}", f"result = {one(model.result)}"]
    lines += ["[converter]", *wheel(pins.converter.wheel), f"requires = {quoted(list(pins.converter.requires))}"]
    lines += [f"installed_bytes = {pins.converter.installed_bytes}"]
    return "\n".join(lines)
