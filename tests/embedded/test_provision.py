"""What a first set-up leaves behind, what a later one costs, and which engine is chosen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from draftmark.embedded import cache, probe, weights
from draftmark.embedded.pins import EnginePin, Pins, load_pins
from draftmark.embedded.progress import NullProgress
from draftmark.embedded.provision import provision
from draftmark.errors import ProvisionError, UsageError

from .fakes import CONVERTED, SERVER, XLLAMACPP, Filled, Index, Recorder


def test_first_set_up_fetches_checks_and_converts(first_filled: Filled) -> None:
    ready, root = first_filled.ready, first_filled.index.root
    assert ready.model.read_bytes() == CONVERTED
    assert (ready.model.parent / "fake_model-1.0.dist-info/LICENSE").read_bytes() == b"do as you like"
    assert (root / "engines/fake_xllamacpp-1.0/xllamacpp/__init__.py").is_file()
    # Nothing else stays: no wheel, no quantised weights, no converter, no staging.
    assert sorted(path.name for path in root.iterdir()) == ["engines", "lock", "models", "probes.json"]
    assert not [path for path in root.rglob("*") if path.suffix in (".whl", ".log") or path.name == "q.gguf"]


def test_command_line_of_the_python_engine(first_filled: Filled) -> None:
    ready = first_filled.ready
    assert ready.command[0] == sys.executable
    assert Path(ready.command[3]).parts[-2:] == ("embedded", "launcher.py")
    flags = ready.command[4:]
    assert flags[:4] == ("-m", str(ready.model), "--host", "127.0.0.1")
    assert {"--metrics", "--slots", "--kv-unified"} < set(flags)
    assert not any(flag.startswith("--spec") for flag in flags)
    assert ready.env == {"PYTHONPATH": str(first_filled.index.root / "engines/fake_xllamacpp-1.0")}
    assert (ready.engine, ready.version) == ("xllamacpp", "1.0")
    with socket.socket() as listener:  # the port is one that can be had
        listener.bind(("127.0.0.1", int(flags[flags.index("--port") + 1])))


def test_progress_names_each_step_and_ends_it(first_filled: Filled) -> None:
    seen = first_filled.seen
    assert [step.split()[1].strip(",") for step in seen.steps] == [
        "fake_xllamacpp",
        "fake_model",
        "fake_gguf",
        "fake_numpy>=1",
        "fake.gguf",
        "fake.gguf",
    ]
    assert len(seen.notes) == 5
    assert all(note.endswith("sha256 as pinned") for note in [*seen.notes[:3], seen.notes[4]])
    assert seen.advanced["checking fake.gguf"] == [len(CONVERTED)]
    assert seen.advanced["writing fake.gguf"] == [24]


def test_second_use_works_offline_without_a_process_or_a_hash(
    filled: Index, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a warm start must not do this")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(cache, "sha256_of", refuse)
    monkeypatch.setattr(cache.Store, "lock", refuse)
    provision(recorder, pins=filled.pins)
    assert (recorder.steps, recorder.notes) == ([], [])


def test_cache_that_was_copied_is_hashed_once_then_trusted(filled: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    real = cache.sha256_of

    def counting(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(cache, "sha256_of", counting)
    model = filled.root / filled.pins.model.directory / "fake.gguf"
    os.utime(model)
    provision(NullProgress(), pins=filled.pins)
    assert hashed == [model]
    provision(NullProgress(), pins=filled.pins)
    assert hashed == [model]


def test_read_only_cache_is_used_as_it_is(filled: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    (filled.root / filled.pins.model.directory / ".stamp.json").unlink()

    def read_only(*_args: object, **_kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", read_only)
    provision(NullProgress(), pins=filled.pins)
    assert not (filled.root / filled.pins.model.directory / ".stamp.json").exists()


@pytest.mark.parametrize("harm", ["altered", "truncated", "deleted", "nonsense in the stamp"])
def test_damaged_file_is_found_and_fetched_again(filled: Index, recorder: Recorder, harm: str) -> None:
    engine = filled.root / "engines/fake_xllamacpp-1.0"
    victim = engine / "xllamacpp/__init__.py"
    if harm == "altered":
        victim.write_bytes(victim.read_bytes().replace(b"1.0", b"6.6"))
    elif harm == "truncated":
        victim.write_bytes(b"")
    elif harm == "deleted":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes().replace(b"1.0", b"6.6"))
        (engine / ".stamp.json").write_text("[]")
    filled.hand_over()
    provision(recorder, pins=filled.pins)
    assert victim.read_text() == XLLAMACPP
    assert recorder.steps == []  # taken from what was handed over; the model was left alone


def test_given_port_is_used(filled: Index) -> None:
    command = provision(NullProgress(), port=4711, pins=filled.pins).command
    assert command[command.index("--port") + 1] == "4711"


def test_one_cpu_gets_one_thread(filled: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    command = provision(NullProgress(), pins=filled.pins).command
    assert command[command.index("-t") + 1] == "1"


def with_engines(index: Index, *engines: EnginePin) -> Pins:
    index.hand_over()
    return replace(index.pins, engines=engines)


def test_engine_that_cannot_be_imported_gives_way_to_the_other(
    filled: Index, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = "libgomp.so.1: cannot open shared object file: No such file or directory"
    broken = filled.python_engine(f"raise ImportError({missing!r})", name="xllamacpp")
    broken = replace(broken, wheel=replace(broken.wheel, version="1.0"))
    pins = with_engines(filled, broken, filled.executable_engine())
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    ready = provision(recorder, pins=pins)
    assert ready.engine == "llama-server"
    assert ready.command[0] == str(filled.root / "engines/fake_server-1.0/fake/bin/llama-server")
    assert ready.command[1] == "-m"
    assert ready.env == {"LD_LIBRARY_PATH": f"{filled.root}/engines/fake_server-1.0/fake/lib:/opt/lib"}
    assert len(recorder.notes) == 1
    assert missing in recorder.notes[0]
    assert recorder.notes[0].endswith("llama-server is used instead")

    # The answers are kept: the next use starts no process.
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: pytest.fail("asked again"))
    assert provision(NullProgress(), pins=pins).engine == "llama-server"


def test_answer_is_asked_anew_when_the_libraries_changed(
    filled: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = tmp_path / "ld.so.cache"
    libraries.write_text("before")
    monkeypatch.setattr(probe, "_LIBRARIES", libraries)
    # Fails until a library is there, as libgomp would.
    flag = tmp_path / "installed"
    source = SERVER + f"[ -e {flag} ] || {{ echo no library >&2; exit 127; }}\n"
    pins = with_engines(filled, filled.executable_engine(source))
    for _ in range(2):
        with pytest.raises(ProvisionError, match="does not run here") as caught:
            provision(NullProgress(), pins=pins)
        assert caught.value.evidence == ("llama-server: no library",)
    flag.touch()
    libraries.write_text("after, longer")
    assert provision(NullProgress(), pins=pins).engine == "llama-server"


def test_death_by_an_unknown_instruction_is_named(filled: Index) -> None:
    pins = with_engines(filled, filled.executable_engine("#!/bin/sh\nkill -ILL $$\n"))
    with pytest.raises(ProvisionError) as caught:
        provision(NullProgress(), engine="llama-server", pins=pins)
    assert caught.value.evidence == ("llama-server: it died of SIGILL: this CPU lacks an instruction that it uses",)
    assert "install libfake" in caught.value.next_step


def test_unknown_engine_is_a_usage_error(index: Index) -> None:
    with pytest.raises(UsageError, match='no embedded engine "vllm"') as caught:
        provision(NullProgress(), engine="vllm", pins=index.pins)
    assert "auto, xllamacpp, llama-server" in caught.value.next_step


def test_other_machine_is_told_before_anything_is_fetched(index: Index) -> None:
    pins = replace(index.pins, engines=(replace(index.pins.engines[0], machine="pdp11"),))
    with pytest.raises(ProvisionError, match="no embedded engine is pinned for"):
        provision(NullProgress(), pins=pins)
    assert not index.cache.exists()


def test_old_cpu_is_told_before_anything_is_fetched(index: Index) -> None:
    pins = replace(index.pins, engines=(replace(index.pins.engines[0], cpu_flags=("avx9000",)),))
    with pytest.raises(ProvisionError, match="this CPU") as caught:
        provision(NullProgress(), pins=pins)
    assert caught.value.evidence == ("xllamacpp needs avx9000",)
    assert not index.cache.exists()


def test_cpu_flags(tmp_path: Path, index: Index) -> None:
    pin = replace(index.pins.engines[0], cpu_flags=("avx2", "fma"))
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu avx fma\n\nprocessor\t: 1\nflags\t\t: fpu avx2 fma\n")
    assert probe.missing_cpu_flags(pin, info) == ("avx2",)
    info.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert probe.missing_cpu_flags(pin, info) == ()
    assert probe.missing_cpu_flags(pin, tmp_path / "none") == ()


def test_pins_of_this_version_are_whole() -> None:
    pins = load_pins()
    assert [engine.name for engine in pins.engines] == ["xllamacpp", "llama-server"]
    files = [file for engine in pins.engines for file in engine.files]
    files += [pins.model.quantised, *pins.model.files]
    hashes = [file.sha256 for file in files]
    wheels = [*(engine.wheel for engine in pins.engines), pins.model.wheel, pins.converter.wheel]
    hashes += [wheel.sha256 for wheel in wheels]
    assert len(set(hashes)) == len(hashes)
    assert all(len(bytes.fromhex(digest)) == 32 for digest in hashes)
    for wheel in wheels:
        assert wheel.file.startswith(f"{wheel.package.replace('-', '_')}-{wheel.version}-")
    for engine in pins.engines:
        if not engine.python:
            assert engine.executable in [file.path for file in engine.files]
            assert any(file.path.startswith(engine.libraries + "/") for file in engine.files)
    assert Path(weights.__file__).with_name("dequantise.py").is_file()
