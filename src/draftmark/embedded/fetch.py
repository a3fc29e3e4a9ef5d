"""Fetches pinned wheels with the user's own pip, so that its index, proxies and certificates hold here too."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from draftmark.errors import ProvisionError, StorageError

from .cache import ELSEWHERE, Store, room, sha256_of, storage_errors
from .pins import ConverterPin, FilePin, WheelPin, megabytes
from .progress import Progress

_POLL_S = 0.05
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_RETRY = re.compile(r"^WARNING: Retrying \(.*?\)\) after |^WARNING: Retrying \(.*?\) after ")


class PipError(Exception):
    """pip ended with an error; `evidence` are the lines that say why."""

    def __init__(self, evidence: tuple[str, ...]) -> None:
        super().__init__(*evidence)
        self.evidence = evidence


class Fetcher:
    """Runs pip for one attempt.

    Args:
        store: The cache; its `downloads` directory may hold wheels that the user put there.
        staging: Directory of this attempt; pip's temporary files go there too.
        progress: Told what is fetched.
        wanted: Everything this attempt needs, for the error of a machine without an index.
    """

    def __init__(
        self, store: Store, staging: Path, progress: Progress, wanted: Sequence[WheelPin | ConverterPin]
    ) -> None:
        self._store = store
        self._staging = staging
        self._progress = progress
        self._wanted = tuple(wanted)
        self._python = ""

    def wheel(self, pin: WheelPin) -> Path:
        """The wheel, its hash checked.

        Raises:
            ProvisionError: It cannot be had, or is not the pinned file.
            StorageError: The disk is full.
        """
        name = f"{pin.package} {pin.version}"
        given = self._store.downloads / pin.file
        if given.is_file():
            _check(given, pin, "copy it again, or delete it to have it fetched")
            return given
        into = self._staging / f"wheel-{pin.package}"
        self._progress.step(f"fetching {name}, {pin.purpose}", pin.size_bytes)
        began = time.monotonic()
        words = ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(into), *pin.pip_tags]
        try:
            self._pip([*words, pin.requirement])
        except PipError as error:
            raise self._unavailable(name, error) from error
        found = sorted(into.glob("*.whl"))
        if len(found) != 1:
            raise ProvisionError(f"pip fetched no wheel of {name}", evidence=tuple(path.name for path in found))
        try:
            _check(
                found[0], pin, "the index serves another file than the pinned one: have it checked, then try again"
            )
        except ProvisionError:
            found[0].unlink()
            raise
        self._progress.done(
            f"{name}: {megabytes(pin.size_bytes)} in {time.monotonic() - began:.1f} s, sha256 as pinned"
        )
        return found[0]

    def converter(self, pin: ConverterPin) -> Path:
        """A directory for PYTHONPATH with the converter's packages.

        Raises:
            ProvisionError: They cannot be had.
            StorageError: The disk is full.
        """
        wheel = self.wheel(pin.wheel)
        into = self._staging / "converter"
        self._progress.step(f"fetching {', '.join(pin.requires)}", None)
        words = ["install", "--no-deps", "--only-binary", ":all:", "--no-compile", "--target", str(into)]
        wanted = [str(wheel), *pin.requires]
        try:
            if not self._given(words, wanted):
                self._pip([*words, *wanted])
        except PipError as error:
            raise self._unavailable(", ".join(pin.requires), error) from error
        self._progress.done(f"{pin.wheel.package} and what it needs: used once, then removed")
        return into

    def _given(self, words: list[str], wanted: list[str]) -> bool:
        """Whether the wheels that the user put into `downloads` are enough."""
        if not any(self._store.downloads.glob("*.whl")):
            return False
        try:
            self._pip([*words, "--no-index", "--find-links", str(self._store.downloads), *wanted])
        except PipError:
            return False
        return True

    def _pip(self, words: list[str]) -> None:
        """Run pip; its largest file so far is the progress.

        Raises:
            PipError: It failed.
            StorageError: It ran out of disk.
        """
        self._python = self._python or self._interpreter()
        common = ["--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off"]
        command = [self._python, "-m", "pip", words[0], *common, *words[1:]]
        output = self._run(command)
        if output is None:
            return
        if full := [line.strip() for line in output.splitlines() if _FULL.search(line)]:
            raise StorageError(
                f"no room left in {self._store.root}",
                evidence=(full[-1], room(self._store.root, None)),
                next_step=ELSEWHERE,
            )
        raise PipError(decisive(output))

    def _run(self, command: list[str]) -> str | None:
        """Run to its end; None on success, else its output. Interrupted, it takes the child with it."""
        log = self._staging / "pip.log"
        # Nothing is installed into an environment, so settings that guard environments do not apply.
        env = {**os.environ, "TMPDIR": str(self._staging), "PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"}
        if index := env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL"):
            env.setdefault("PIP_INDEX_URL", index)  # who has uv and no pip has set the index there
        with storage_errors(self._store.root), log.open("wb") as out:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
        try:
            while child.poll() is None:
                self._progress.advance(_largest(self._staging))
                time.sleep(_POLL_S)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        return None if child.returncode == 0 else log.read_text(encoding="utf-8", errors="replace")

    def _interpreter(self) -> str:
        """An interpreter with pip: this one, else that of a throwaway environment.

        Raises:
            ProvisionError: Neither this one has pip nor can one be made.
        """
        if importlib.util.find_spec("pip") is not None:
            return sys.executable
        place = self._staging / "pip-env"
        output = self._run([sys.executable, "-m", "venv", str(place)])
        if output is not None:
            raise ProvisionError(
                "pip is needed to fetch the embedded engine, and this Python has none",
                evidence=decisive(output),
                next_step=f"{sys.executable} -m ensurepip, or uv pip install pip, or apt-get install python3-venv",
            )
        return str(place / "bin" / "python")

    def _unavailable(self, name: str, error: PipError) -> ProvisionError:
        """The error of a machine whose index does not have it: what is missing, why, and how to bring it."""
        wheels = [pin.wheel if isinstance(pin, ConverterPin) else pin for pin in self._wanted]
        missing = [pin for pin in wheels if not (self._store.downloads / pin.file).is_file()]
        free = [name for pin in self._wanted if isinstance(pin, ConverterPin) for name in pin.requires]
        shown = [*(f"missing: {pin}" for pin in missing), *([f"missing: {', '.join(free)}"] if free else [])]
        return ProvisionError(
            f"{name} could not be fetched with pip",
            evidence=(*error.evidence, *shown),
            next_step=(
                "see that pip reaches an index (pip config list), or run these where it does, on the same kind of "
                f"machine and Python, and put the wheels into {self._store.downloads}:\n"
                + "\n".join(_commands(missing, free))
            ),
        )


def unpack(wheel: Path, files: Sequence[FilePin], into: Path, *, store: Store) -> None:
    """Take the pinned members, and no other, out of a wheel.

    Raises:
        ProvisionError: A member is missing or is not what was pinned.
        StorageError: The disk is full.
    """
    try:
        with storage_errors(store.root), zipfile.ZipFile(wheel) as archive:
            for pin in files:
                target = into / pin.path
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(pin.path) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ProvisionError(f"{wheel.name} is damaged", evidence=(str(error),)) from error
    for pin in files:
        if (actual := sha256_of(into / pin.path)) != pin.sha256:
            raise _mismatch(f"{pin.path} in {wheel.name}", pin.sha256, actual, "")


def decisive(output: str) -> tuple[str, ...]:
    """The lines of pip's output that say why it failed: why the connection broke, and its last error."""
    stripped = (_RETRY.sub("", line.strip()) for line in output.splitlines() if line.strip())
    lines = [_CREDENTIALS.sub("//", line)[:300] for line in stripped]
    broken = [line for line in lines if "connection broken" in line][-1:]
    errors = [line for line in lines if line.startswith("ERROR:")]
    # "No matching distribution" only repeats the line before it, which also lists the versions there are.
    telling = [line for line in errors if "No matching distribution" not in line] or errors
    if telling[-1:] == ["ERROR: Exception:"]:  # a traceback follows, its last line is the error
        telling = lines
    return tuple(broken + telling[-1:]) or tuple(lines[-1:])


def _largest(directory: Path) -> int:
    """Size of the largest file below: what is being fetched."""
    largest = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                largest = max(largest, os.lstat(os.path.join(folder, name)).st_size)  # noqa: PTH118  20 times a second
            except OSError:  # moved meanwhile
                continue
    return largest


def _check(path: Path, pin: WheelPin, next_step: str) -> None:
    if (actual := sha256_of(path)) != pin.sha256:
        raise _mismatch(str(path), pin.sha256, actual, next_step)


def _mismatch(name: str, expected: str, actual: str, next_step: str) -> ProvisionError:
    return ProvisionError(
        f"{name} is not the pinned file",
        evidence=(f"expected sha256 {expected}", f"actual   sha256 {actual}"),
        next_step=next_step,
    )


def _commands(wheels: Sequence[WheelPin], free: Sequence[str]) -> list[str]:
    words = "    pip download --no-deps --only-binary :all: --dest DIR"
    lines = [" ".join([words, *pin.pip_tags, pin.requirement]) for pin in wheels]
    return [*lines, *([f"{words} {' '.join(repr(name) for name in free)}"] if free else [])]
