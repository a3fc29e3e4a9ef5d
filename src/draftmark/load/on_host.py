"""The load generator on the service's own host: neither link nor tunnel is then in the figures.

It is the Draftmark that is installed there, of the same version. It is told what to do by a file and answers in
lines of JSON; when our end of its output closes, it ends, and its requests with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from draftmark.errors import BadInputError, FailedError, Interrupted
from draftmark.load.client import LoadPlan, LoadRun, run_load
from draftmark.load.drive import OnProgress, OnRecord
from draftmark.model import ClientHealth, RequestRecord, Workload
from draftmark.ports import Host

VERB = "load"
"""The verb, not meant for people, by which it is started there."""

_SPOOL = 'umask 077; f=$(mktemp "${TMPDIR:-/tmp}/draftmark-load.XXXXXX") && cat >"$f" && printf %s "$f"'
_LEFT = "not sent, or not yet answered, when it was interrupted"
_LOOK_S = 15.0
_LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One measurement: the arguments of `run_load` that a run needs."""

    base_url: str
    plan: LoadPlan
    headers: dict[str, str]
    connect_timeout_s: float
    workers: int


@dataclass(frozen=True, slots=True)
class Said:
    """One line of the answer; one of its parts is there.

    Attributes:
        progress: Requests ended, of how many, tokens per second so far, errors.
        run: What it came to, without the records, which went before.
    """

    record: RequestRecord | None = None
    progress: tuple[int, int, float | None, int] | None = None
    run: LoadRun | None = None


def serve(spec_file: Path, write: Callable[[bytes], object]) -> None:
    """Carry out a spec; the file, which may hold a key, is removed before the first request.

    Raises:
        BadInputError: It is no spec.
        UsageError: Its plan cannot be carried out.
    """
    try:
        data = spec_file.read_bytes()
        spec_file.unlink()
        spec = msgspec.json.decode(data, type=Spec)
    except (OSError, msgspec.DecodeError) as error:
        raise BadInputError(
            f"{spec_file} is no load to be run", evidence=(str(error),), next_step="draftmark bench SERVICE"
        ) from None

    def say(said: Said) -> None:
        write(msgspec.json.encode(said) + b"\n")

    run = run_load(
        spec.base_url,
        spec.plan,
        headers=spec.headers,
        connect_timeout_s=spec.connect_timeout_s,
        workers=spec.workers,
        on_record=lambda record: say(Said(record=record)),
        on_progress=lambda *now: say(Said(progress=now)),
    )
    say(Said(run=replace(run, records=())))


def find_program(host: Host, version: str) -> tuple[str, ...] | None:
    """How the same version of Draftmark is called on a host; None where it is not installed."""
    for program in (("draftmark",), ("python3", "-m", "draftmark")):
        ended = host.run((*program, "--version"), timeout_s=_LOOK_S)
        if ended.ok and ended.stdout.decode("utf-8", "replace").split() == ["draftmark", version]:
            return program
    return None


@dataclass(frozen=True, slots=True)
class OnHostLoad:
    """tune.trial.Load that runs on the service's host.

    Attributes:
        program: From `find_program`.
        there: From a URL as it is reached from here to the URL on that host.
        api: Over which `__call__` asks.
    """

    host: Host
    program: Sequence[str]
    there: Callable[[str], str]
    api: str = "openai-chat"

    def __call__(
        self,
        base_url: str,
        workload: Workload,
        *,
        concurrency: int,
        repeat: int,
        warmup: int,
        extra: dict[str, object],
        request_timeout_s: float,
        headers: dict[str, str],
        first_tag: int,
        on_record: OnRecord,
        on_progress: OnProgress,
    ) -> LoadRun:
        """Run one axis to its end.

        Raises:
            FailedError: It could not be run there, or broke off.
            HostError: The host cannot be reached any more.
        """
        plan = LoadPlan(
            workload=workload,
            concurrency=concurrency,
            api=self.api,
            repeat=repeat,
            warmup=warmup,
            extra=extra,
            request_timeout_s=request_timeout_s,
            first_tag=first_tag,
        )
        return self.run_load(base_url, plan, headers=headers, on_record=on_record, on_progress=on_progress)

    def run_load(
        self,
        base_url: str,
        plan: LoadPlan,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 10.0,
        workers: int = 1,
        on_record: OnRecord | None = None,
        on_progress: OnProgress | None = None,
        on_interrupted: Callable[[LoadRun], None] | None = None,
    ) -> LoadRun:
        """`draftmark.load.client.run_load`, over there.

        Raises:
            FailedError: It could not be run there, or broke off.
            HostError: The host cannot be reached any more.
        """
        spec = Spec(
            base_url=self.there(base_url),
            plan=plan,
            headers=dict(headers or {}),
            connect_timeout_s=connect_timeout_s,
            workers=workers,
        )
        spooled = self.host.run(("sh", "-c", _SPOOL), input=msgspec.json.encode(spec))
        if not spooled.ok:
            raise FailedError("the load cannot be handed to the service's host", evidence=(spooled.stderr[:300],))
        records: list[RequestRecord] = []

        def keep(record: RequestRecord) -> None:
            records.append(record)
            if on_record is not None:
                on_record(record)

        try:
            run = self._followed(spooled.stdout.decode(), keep, on_progress)
        except (KeyboardInterrupt, Interrupted):
            if on_interrupted is not None:
                on_interrupted(_so_far(records, plan))
            raise
        return replace(run, records=tuple(records))

    def _followed(self, spec_file: str, on_record: OnRecord, on_progress: OnProgress | None) -> LoadRun:
        run: LoadRun | None = None
        stream = self.host.stream((*self.program, VERB, spec_file), timeout_s=_LONGEST_S)
        try:
            for said in _lines(stream):
                if said.record is not None:
                    on_record(said.record)
                elif said.progress is not None and on_progress is not None:
                    on_progress(*said.progress)
                run = said.run or run
        finally:
            ended = stream.close()
        if run is None:
            raise FailedError(
                "the load generator on the service's host broke off",
                evidence=tuple(ended.stderr.strip().splitlines()[-3:]) or (f"exit status {ended.status}",),
                next_step="send the load from here instead: --load-from here",
            )
        return run


def _so_far(records: Sequence[RequestRecord], plan: LoadPlan) -> LoadRun:
    """What had come over when it was interrupted; of the requests then under way nothing is known here."""
    left = plan.total - sum(not record.warmup for record in records)
    return LoadRun(
        records=tuple(records),
        client=ClientHealth(),
        assumptions=(),
        stopped_because="it was interrupted",
        unsent={_LEFT: left} if left else {},
    )


def _lines(chunks: Iterable[bytes]) -> Iterator[Said]:
    decoder = msgspec.json.Decoder(Said)
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):  # something else that it printed
                yield decoder.decode(line)
