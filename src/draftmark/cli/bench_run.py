"""What `bench` does between its options and its document: each measurement, kept as it goes."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from draftmark.cli.bench_server import Server
from draftmark.cli.load_options import Asked
from draftmark.cli.load_progress import LoadView
from draftmark.errors import Interrupted
from draftmark.load.client import LoadPlan, LoadRun
from draftmark.load.journal import Ending, JournalWriter, Measured
from draftmark.model import ClientHealth, Counters, RequestRecord
from draftmark.tune.disturbance import load_faults
from draftmark.tune.measuring import Axis, Limits, counters_between

LIMIT_REACHED = "the limit of "  # how a run's own limit is told from a server that went away


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How it is measured.

    Attributes:
        requests: Of each measurement, where the user says; at least one a slot.
        repeat: Rounds over everything, so that what drifts meanwhile is shared by all.
        max_seconds: Limit of each measurement; None is none.
        request_timeout_s: Limit of each request.
        stream: Ask for streams.
        workers: Processes that send.
    """

    requests: int | None = None
    repeat: int = 1
    max_seconds: float | None = None
    request_timeout_s: float = 120.0
    stream: bool = True
    workers: int = 1


@dataclass(slots=True, kw_only=True)
class Bench:
    """A run of `bench`.

    Attributes:
        server: That is asked.
        journal: Where each request is kept; None for nowhere.
        measured: Each measurement is put here, also the one that was interrupted.
    """

    server: Server
    asked: Asked
    axes: Sequence[Axis]
    options: Options
    console: Console
    journal: JournalWriter | None
    measured: list[Measured]
    _tag: int = 1

    def go(self) -> None:
        """Measure everything.

        Raises:
            Interrupted: What was measured until then is in `measured`.
        """
        repeat = self.options.repeat
        for number in range(1, repeat + 1):
            for axis in self.axes:
                name = axis.key if self.asked.send_at_s is None else f"{axis.workload.name}, open loop"
                self._measure(axis, f"{name}, run {number} of {repeat}" if repeat > 1 else name)

    def _measure(self, axis: Axis, name: str) -> None:
        plan = self._plan(axis)
        self._tag += plan.warmups + plan.conversations
        before = self._counters()
        records: list[RequestRecord] = []
        told: list[LoadRun] = []
        written = self.journal.written if self.journal is not None else 0
        view = LoadView(
            self.console,
            name,
            total=plan.total,
            slots=plan.concurrency,
            send_at_s=plan.send_at_s,
            max_seconds=plan.max_seconds,
        )

        def keep(record: RequestRecord) -> None:
            record = self._redacted(record)
            records.append(record)
            if self.journal is not None:
                self.journal.request(record)
            view.record(record)

        try:
            with view:
                run = self.server.load(
                    self.server.base_url,
                    plan,
                    headers=self.server.headers,
                    workers=self.options.workers,
                    on_record=keep,
                    on_progress=view.show,
                    on_interrupted=told.append,
                )
        except Interrupted as stop:
            because = f"stopped by {signal.Signals(stop.signum).name}"
            run = told[0] if told else LoadRun((), ClientHealth(), (), because)
            self._complete(records, run, written)
            run = dataclasses.replace(run, records=tuple(records), stopped_because=because)
            self._end(self._ending(axis, before, run, wanted=True), records)
            raise
        wanted = plan.max_seconds is not None and (run.stopped_because or "").startswith(LIMIT_REACHED)
        self._end(self._ending(axis, before, run, wanted=wanted), records)

    def _complete(self, records: list[RequestRecord], run: LoadRun, written: int) -> None:
        """What the signal met on its way here: a record that was handed over, and not kept or not written.

        Args:
            records: Kept so far; the others are added.
            run: All that there are.
            written: In the journal before this measurement.
        """
        kept = {record.tag for record in records}
        records += [self._redacted(record) for record in run.records if record.tag not in kept]
        if self.journal is not None:
            for record in records[self.journal.written - written :]:
                self.journal.request(record)

    def _plan(self, axis: Axis) -> LoadPlan:
        asked, options, api = self.asked, self.options, self.server.api
        if asked.by_ids and api == "openai-chat":
            api = "openai"  # token ids go where no chat template is put around them
        workload, repeat = axis.workload, axis.repeat
        if asked.send_at_s is None and options.requests is not None:  # not whole passes over the prompts
            wanted = max(options.requests, axis.concurrency)
            workload = dataclasses.replace(workload, prompts=(workload.prompts * repeat)[:wanted])
            repeat = 1
        return LoadPlan(
            workload=workload,
            concurrency=axis.concurrency,
            api=api,
            repeat=repeat,
            warmup=axis.warmup,
            extra=self.server.extra_of(shares=asked.shares),
            request_timeout_s=options.request_timeout_s,
            max_seconds=options.max_seconds,
            model=self.server.model,
            first_tag=self._tag,
            send_at_s=asked.send_at_s,
            think_s=asked.think_s,
            stream=options.stream,
        )

    def _ending(self, axis: Axis, before: Counters, run: LoadRun, *, wanted: bool) -> Ending:
        """What no request knows.

        Args:
            axis: What was measured.
            before: The server's counters at the begin.
            run: How it went.
            wanted: That it ended early is no fault: the user said so.
        """
        limits = Limits()
        judged = dataclasses.replace(run, stopped_because=None) if wanted else run
        return Ending(
            workload=axis.workload.name,
            concurrency=axis.concurrency,
            prompts_sha256=axis.workload.sha256,
            arrival=self.asked.arrival,
            counters=counters_between(before, self._counters()),
            client=run.client,
            assumptions=(
                *run.assumptions,
                self.server.cache_policy(shares=self.asked.shares),
                *self.asked.notes,
            ),
            disturbed=load_faults(judged, limits.max_error_rate, limits.max_loop_lag_ms),
            unsent=dict(run.unsent),
            stopped_because=run.stopped_because,
        )

    def _end(self, ending: Ending, records: Sequence[RequestRecord]) -> None:
        if self.journal is not None:
            self.journal.ending(ending)
        self.measured.append(Measured(records=tuple(records), ending=ending))

    def _counters(self) -> Counters:
        return self.server.client.counters() if self.server.client else Counters()

    def _redacted(self, record: RequestRecord) -> RequestRecord:
        """A server may send back what it was sent, the key included."""
        if record.error_detail is None:
            return record
        return dataclasses.replace(record, error_detail=self.server.redactor.text(record.error_detail))
