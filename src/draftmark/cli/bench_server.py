"""The server that `bench` measures: somebody's own, or one that is started for it and stopped afterwards."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from draftmark.cli import services
from draftmark.cli.output import progress_console
from draftmark.engines.detect import detect
from draftmark.engines.http import call
from draftmark.errors import FailedError
from draftmark.load.client import LoadPlan, LoadRun, run_load
from draftmark.load.on_host import OnHostLoad
from draftmark.load.protocols import first_model
from draftmark.model import Health, RequestRecord, ServiceKind
from draftmark.ports import EngineClient
from draftmark.run.redact import Redactor
from draftmark.service.host import SystemClock

if TYPE_CHECKING:
    from draftmark.cli.target import Target

_CACHE_SWITCHES = ("cache_prompt", "cache_salt")
_COUNT_EACH_CHUNK, _OPENAI = ("vllm", "sglang"), ("openai", "openai-chat")
"""Who tells the tokens of each chunk when asked. Others may refuse a request for it, and with it all counts."""


class RunLoad(Protocol):
    """The load generator: `load.client.run_load`, or `OnHostLoad.run_load` on the server's host."""

    def __call__(
        self,
        base_url: str,
        plan: LoadPlan,
        *,
        headers: Mapping[str, str] | None,
        workers: int,
        on_record: Callable[[RequestRecord], None],
        on_progress: Callable[[int, int, float | None, int], None],
        on_interrupted: Callable[[LoadRun], None],
    ) -> LoadRun:
        """Carry out a plan. An interruption comes through, after `on_interrupted` was given what there is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that serves.

    Attributes:
        shown: As it was named, redacted.
        base_url: Where it is reached from.
        engine: Its name, or `unknown`.
        client: For asking it about itself; None for an engine without a client here.
        headers: Sent with every request.
        extra: Fields for measured requests.
        api: The wire format of the load.
        model: As it calls its first model; None when it does not say.
        load: The load generator, here or on the server's host.
        redactor: Hides the headers' values in what it sends back.
    """

    shown: str
    base_url: str
    engine: str
    client: EngineClient | None
    headers: dict[str, str]
    extra: dict[str, object]
    api: str
    model: str | None = None
    load: RunLoad = run_load
    redactor: Redactor = field(default_factory=lambda: Redactor(values=()))

    def extra_of(self, *, shares: bool) -> dict[str, object]:
        """Fields for measured requests. A load about shared beginnings needs the server's prompt cache.

        Args:
            shares: Whether it is one.
        """
        extra = {key: value for key, value in self.extra.items() if not (shares and key in _CACHE_SWITCHES)}
        if self.engine in _COUNT_EACH_CHUNK and self.api in _OPENAI:
            extra.setdefault("stream_options", {"continuous_usage_stats": True})
        return extra

    def cache_policy(self, *, shares: bool) -> str:
        """What was done about the server's prompt cache, which answers a prompt faster that it knows."""
        if shares:
            return "The server's prompt cache was left on, since the prompts share beginnings on purpose."
        if "cache_prompt" in self.extra:
            return "The server's prompt cache was switched off for these requests (cache_prompt: false)."
        if "cache_salt" in self.extra:
            return (
                "Each request had the server's prompt cache for itself alone, so that none found another's prompt."
            )
        return "A server with a prefix cache answers prompts faster that it has seen before, here or earlier."


@contextmanager
def serving(args: argparse.Namespace, headers: dict[str, str]) -> Iterator[Server]:
    """The server that the arguments name; what was started here is stopped at the end.

    Raises:
        DraftmarkError: It cannot be started, or does not serve.
    """
    reference = services.reference(args)
    if reference is not None and reference.kind is ServiceKind.URL:
        found = detect(reference.target, headers)
        base_url = reference.target.rstrip("/").removesuffix("/v1")
        yield Server(
            shown=str(reference),
            base_url=base_url,
            engine=found.engine,
            client=found.client,
            headers=headers,
            extra=dict(found.extra),
            api=args.api or found.api,
            model=args.model or _model(base_url, headers),
            redactor=Redactor.of((), {}, headers.values()),
        )
        return
    from draftmark.cli import compose  # engines and supervisors: nothing that a URL needs

    target = compose.target(args)
    if target.may_run:
        yield _live(args, target, headers)
        return
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="draftmark-") as scratch, target.rig(clock) as rig:
        ready = rig.starter(clock, args.start_timeout).start(target.command, Path(scratch) / "server.log")
        yield _of_target(args, target, ready.client, headers, target.shown)


def _live(args: argparse.Namespace, target: Target, headers: dict[str, str]) -> Server:
    """A service as it runs: it is only measured.

    Raises:
        FailedError: It does not run, or does not serve.
        RefusedError: A Draftmark is at work on it.
    """
    with progress_console().status(f"reaching {target.shown} …"):
        target.refuse_if_held()
        client = target.client()
        health = client.health()
    if health is not Health.READY:
        raise FailedError(
            f"{target.shown} does not serve now",
            evidence=(f"GET /health: {health.value}",),
            next_step=f"draftmark why {target.shown.partition(' ')[0]}",
        )
    return _of_target(args, target, client, headers, f"{target.shown}, from {target.load_from}")


def _of_target(
    args: argparse.Namespace, target: Target, client: EngineClient, headers: dict[str, str], shown: str
) -> Server:
    from draftmark.cli.engines import api_of

    sent = {**target.engine.headers(target.command), **headers}
    return Server(
        shown=shown,
        base_url=client.base_url,
        engine=target.engine.name,
        client=client,
        headers=sent,
        extra=target.engine.request_extra(),
        api=api_of(args, target.engine, target.command),
        model=args.model or _model(client.base_url, sent),
        load=target.load.run_load if isinstance(target.load, OnHostLoad) else run_load,
        redactor=Redactor.of((), {}, sent.values()),
    )


def _model(base_url: str, headers: dict[str, str]) -> str | None:
    """The server's own name for its model, asked once for the whole run."""
    reply = call(f"{base_url}/v1/models", headers=headers)
    return first_model(reply.body) if reply is not None and reply.status == 200 else None
