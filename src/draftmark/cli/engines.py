"""Which engines there are, and which of them a command line starts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.versions import shell_find
from draftmark.errors import HostError
from draftmark.ports import Engine, Host

_LOOK_S = 10.0
EMBEDDED = ("auto", "xllamacpp", "llama-server")
"""What can serve embedded:."""


def known_engines(args: argparse.Namespace, host: Host | None = None) -> tuple[Engine, ...]:
    """Every engine that Draftmark can start.

    Args:
        args: Of the verb: `method`, and `engine` where it names one of these with a version.
        host: Where the service is; None is this computer.
    """

    def look(patterns: Sequence[str]) -> Sequence[str]:
        """Paths on that host; none where it cannot be asked just now, for the version is then only assumed."""
        try:
            ended = host.run(("sh", "-c", shell_find(patterns)), timeout_s=_LOOK_S) if host else None
        except HostError:
            return ()
        return ended.stdout.decode("utf-8", "replace").splitlines() if ended else ()

    from draftmark.engines.llamacpp.engine import LlamaCpp  # these take longer than all that `fit` does
    from draftmark.sim.engine import SimulatedSGLang

    name, _, version = (getattr(args, "engine", None) or "").partition("==")
    told = version if name.lower() == "sglang" and version else None
    return (
        LlamaCpp(method=args.method),
        SGLang(method=args.method, version=told, find=look if host is not None else None),
        SimulatedSGLang(method=args.method),
    )


def starts(command: Sequence[str], engines: Sequence[Engine]) -> Engine | None:
    """The engine that a command line starts; None when it starts none of them."""
    return next((engine for engine in engines if engine.recognises(command)), None)


def version_of(engine: Engine, command: Sequence[str]) -> str | None:
    """As the package beside the command line's interpreter says; None where nothing is known before a start."""
    return engine.version(command) if isinstance(engine, SGLang) else None


def api_of(args: argparse.Namespace, engine: Engine, command: Sequence[str]) -> str:
    """The wire format of the load: the user's, else the engine's own where its answers tell more.

    SGLang's native answers tell what became of the drafts; its `/tokenize` knows the chat template since 0.5.12.
    """
    if (asked := getattr(args, "api", None)) is not None:  # not every verb sends requests
        return str(asked)
    if isinstance(engine, SGLang) and engine.native_api(command):
        return "sglang"
    return "openai-chat"


def engine_named(text: str) -> str:
    """A reader of `--engine`: how embedded: is served, or an engine's version."""
    name, equals, version = text.partition("==")
    if text in EMBEDDED or (name == "sglang" and bool(equals) == bool(version)):
        return text
    raise argparse.ArgumentTypeError(
        f"{text[:40]!r} is none of {', '.join(EMBEDDED)}, sglang, and no sglang==VERSION"
    )
