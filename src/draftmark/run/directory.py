"""The run directory: written record by record as the run goes, so that a crash loses nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from draftmark.errors import BadInputError, StorageError, UsageError
from draftmark.model import RequestRecord, Trial
from draftmark.run.records import (
    RUN_SCHEMA,
    WHY_SCHEMA,
    Action,
    RunInfo,
    RunRecord,
    TrialRecord,
    WhyRecord,
    decode,
    decode_lines,
    encode_document,
    encode_line,
    learned,
)
from draftmark.run.redact import Redactor

WHY = "why.json"
"""In a trial's directory: why its server did not start or died."""

_TRIAL_DIRECTORY = re.compile(r"^(\d+)-(?!.*\.interrupted-\d+$).+$")


@contextlib.contextmanager
def storing(path: Path, *, begun: bool = False) -> Iterator[None]:
    """Turn what the file system says into the errors that users read.

    Args:
        path: The run directory.
        begun: It could be written before, in this very run: the user has named a good one.

    Raises:
        StorageError: The disk is full, a quota is used up, the device failed, or it is not to be written any more.
        BadInputError: The path cannot be written at all.
    """
    try:
        yield
    except OSError as error:
        evidence = (f"{error.filename or path}: {error.strerror} (errno {error.errno})",)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
            raise StorageError(
                "a record of the run could not be written",
                evidence=evidence,
                next_step=f"free some space, then: draftmark tune --resume {path}",
            ) from None
        if begun and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.EACCES, errno.EPERM):
            raise StorageError(
                f"the run directory {path} was removed or made read-only during the run",
                evidence=evidence,
                next_step="begin a new run, in a directory that stays",
            ) from None
        advice = "name a directory that you may write to: --run DIR"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            advice = "raise the limit of open files (ulimit -n), or lower --concurrency"
        raise BadInputError(
            f"cannot write to the run directory {path}", evidence=evidence, next_step=advice
        ) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, flush, rename: a reader sees the old file or the new one, never half of one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


class TrialWriter:
    """Files of one trial in the making. Its directory counts as finished when `trial.json` is there."""

    def __init__(self, run: Path, path: Path, *, requests: str = "requests.jsonl") -> None:
        self._run = run
        self.path = path
        self.written = 0
        self._requests_path = path / requests
        self._requests: BinaryIO | None = None

    @classmethod
    def at(cls, path: Path) -> TrialWriter:
        """A writer of request records alone, for a file of the user's own."""
        return cls(path.parent, path.parent, requests=path.name)

    @property
    def log(self) -> Path:
        """Where the server's stdout and stderr go."""
        return self.path / "server.log"

    def request(self, record: RequestRecord) -> None:
        """Append one request record, through to the kernel."""
        with storing(self._run, begun=True):
            if self._requests is None:
                self._requests = self._requests_path.open("ab", buffering=0)
            line = encode_line(record)
            if self._requests.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._requests_path))
        self.written += 1

    def text(self, name: str, content: str) -> None:
        """A file beside the records, such as `metrics.before.prom`."""
        with storing(self._run, begun=True):
            write_atomically(self.path / name, content.encode())

    def document(self, name: str, content: object) -> None:
        """A JSON file beside the records, such as `measurement.json`."""
        self.data(name, encode_document(content))

    def data(self, name: str, content: bytes) -> None:
        """A file beside the records, from its bytes."""
        with storing(self._run, begun=True):
            write_atomically(self.path / name, content)

    def scrub_log(self, redactor: Redactor) -> None:
        """Secrets out of the server's log: some servers print their command line. Large logs go line by line."""
        if not redactor.values or not self.log.is_file():
            return
        with storing(self._run, begun=True):
            beside = self.log.with_name(f".{self.log.name}.part")
            changed = False
            with self.log.open("rb") as old, beside.open("wb") as new:
                for line in old:
                    clean = redactor.bytes(line) if any(v.encode() in line for v in redactor.values) else line
                    changed = changed or clean != line
                    new.write(clean)
            if changed:
                beside.replace(self.log)
            else:
                beside.unlink()

    def finish(self, trial: Trial) -> None:
        """Write `trial.json`: from now on the trial is not repeated."""
        self.close()
        self.document("trial.json", trial)

    def close(self) -> None:
        """Close the record file. Idempotent."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None


class RunDirectory:
    """A run on disk."""

    def __init__(self, path: Path, info: RunInfo) -> None:
        self.path = path
        self._begun = False
        self.info = info

    @classmethod
    def create(cls, path: Path, info: RunInfo) -> RunDirectory:
        """Make a new run directory.

        Raises:
            UsageError: There is something at that place already.
            BadInputError: The place cannot be written.
            StorageError: The disk is full.
        """
        data = encode_document(info)
        with storing(path):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UsageError(
                    f"{path} exists and is not an empty directory",
                    next_step=f"go on with it (draftmark tune --resume {path}) or name another: --run DIR",
                )
            (path / "trials").mkdir(parents=True, exist_ok=True)
            write_atomically(path / "run.json", data)
        return cls(path, info)

    def discard_if_empty(self) -> None:
        """Remove a run in which nothing was done; its place may have been there before."""
        with contextlib.suppress(OSError):
            (self.path / "trials").rmdir()  # not when a trial is in it
            if {entry.name for entry in self.path.iterdir()} == {"run.json"}:
                (self.path / "run.json").unlink()
                self.path.rmdir()
            else:
                (self.path / "trials").mkdir()

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run.

        Raises:
            BadInputError: It is not a run directory, or its run.json cannot be read.
        """
        try:
            data = (path / "run.json").read_bytes()
            info = decode(data, RunInfo)
        except OSError as error:
            raise BadInputError(
                f"{path} is not a run directory",
                evidence=(f"run.json: {error.strerror}",),
                next_step="give the directory that `draftmark tune` named at its end",
            ) from None
        except msgspec.DecodeError as error:
            raise BadInputError(
                f"{path / 'run.json'} cannot be understood",
                evidence=(str(error),),
                next_step="it was written by another version, or damaged; start a new run",
            ) from None
        if info.schema != RUN_SCHEMA:
            raise BadInputError(
                f"{path} was written by another version of draftmark",
                evidence=(f"schema {info.schema}, this version reads {RUN_SCHEMA}",),
                next_step=f"use draftmark {info.draftmark}",
            )
        return cls(path, info)

    def action(self, action: Action) -> None:
        """Append one action. What a power cut has torn off goes first, so that the rest stays readable."""
        with storing(self.path, begun=self._begun), (self.path / "actions.jsonl").open("a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                file.truncate(os.pread(file.fileno(), size, 0).rfind(b"\n") + 1)
            file.write(encode_line(action))
        self._begun = True

    def trial(self, directory: str) -> TrialWriter:
        """Begin a trial. What an interrupted try left under that name is kept beside it, out of every figure."""
        path = self.path / "trials" / directory
        with storing(self.path, begun=self._begun):
            if path.exists():
                attempt = 1
                while (aside := path.with_name(f"{directory}.interrupted-{attempt}")).exists():
                    attempt += 1
                path.rename(aside)
            path.mkdir(parents=True)
        return TrialWriter(self.path, path)

    def finished(self) -> frozenset[int]:
        """Slot numbers whose trial is over."""
        return frozenset(number for number, _ in self._finished())

    def _finished(self) -> list[tuple[int, Path]]:
        found = []
        for path in (self.path / "trials").iterdir() if (self.path / "trials").is_dir() else ():
            name = _TRIAL_DIRECTORY.match(path.name)
            if name and (path / "trial.json").is_file():
                found.append((int(name[1]), path))
        return sorted(found)

    def load(self) -> RunRecord:
        """Read everything back; torn last lines are left out.

        Raises:
            BadInputError: A finished trial cannot be read.
        """
        log = self.path / "actions.jsonl"
        actions = decode_lines(log.read_bytes(), Action) if log.exists() else ()
        try:
            info = learned(self.info, actions)
        except (LookupError, TypeError, ValueError, msgspec.DecodeError) as error:
            raise BadInputError(
                f"{log} cannot be understood",
                evidence=(str(error),),
                next_step="it was damaged; begin a new run",
            ) from None
        trials: list[TrialRecord] = []
        strays: list[str] = []
        planned = {slot.number: slot.arm for slot in info.schedule}
        for number, path in self._finished():
            try:
                trial = decode((path / "trial.json").read_bytes(), Trial)
                requests = path / "requests.jsonl"
                records = decode_lines(requests.read_bytes(), RequestRecord) if requests.exists() else ()
            except (OSError, msgspec.DecodeError) as error:
                raise BadInputError(
                    f"{path} cannot be read",
                    evidence=(str(error),),
                    next_step=f"move it away and go on: draftmark tune --resume {self.path}",
                ) from None
            if path.name != trial.directory or planned.get(number) != trial.arm:
                strays.append(path.name)
                continue
            why, fault = _why(path / WHY)
            trials.append(TrialRecord(trial=trial, requests=records, why=why, why_fault=fault))
        return RunRecord(info=info, actions=actions, trials=tuple(trials), strays=tuple(strays))

    def write(self, name: str, data: bytes) -> Path:
        """A derived file, such as `result.json`; replaced as a whole."""
        with storing(self.path, begun=self._begun):
            write_atomically(self.path / name, data)
        return self.path / name


def _why(path: Path) -> tuple[WhyRecord | None, str | None]:
    """The post-mortem, or what keeps it from being read. Not having one is no fault: most servers live."""
    try:
        why = decode(path.read_bytes(), WhyRecord)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, error.strerror or "not readable"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return None, f"torn or damaged: {error}"
    if why.schema != WHY_SCHEMA:
        return None, f"schema {why.schema}, this version reads {WHY_SCHEMA}"
    return why, None
