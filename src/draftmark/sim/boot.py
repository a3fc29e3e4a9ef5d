"""How a simulated server starts, line by line, in the words and the order of its version. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.sim.arguments import printed
from draftmark.sim.loading import IMPORT_S, Loader, Start
from draftmark.sim.step import Step

WARM_UP_S = 3.0
READY = "The server is fired up and ready to roll!"


def starting(start: Start) -> Iterator[Step]:
    """Up to the line before HTTP is up.

    Raises:
        StartFailedError: It does not come up; the last lines say why.
    """
    yield from _launcher(start)
    yield Step(text="Init torch distributed begin.", after_s=IMPORT_S, ranks=True)
    yield Step(text="Init torch distributed ends. elapsed=0.04 s, mem usage=0.09 GB", ranks=True)
    loader = Loader(start)
    if start.minor <= 12:
        yield from loader.target_weights()
        yield from loader.target_pool()
        yield from loader.graphs(draft=False)
        yield from loader.draft_weights()
        yield from loader.draft_pool()
        yield from loader.graphs(draft=True)
    else:
        yield from loader.target_weights()
        yield from loader.draft_weights()
        yield from loader.target_pool()
        yield from loader.draft_pool()
        yield from loader.graphs(draft=False)
        yield from loader.graphs(draft=True)
    yield from loader.summary()


def _launcher(start: Start) -> Iterator[Step]:
    for flag, instead in start.deprecated:
        advice = f" Use '{instead}' instead." if instead.startswith("--") else ""
        yield Step(
            text=f"\x1b[1;33m'{flag}' is deprecated and will be removed in a future release.{advice}\x1b[0m",
            plain=True,
        )
    settings = start.memory.settings
    if settings.algorithm is not None and settings.running is None:
        yield Step(
            text="Max running requests is reset to 48 for speculative decoding. You can override this by "
            "explicitly setting --max-running-requests."
        )
    asked = start.memory.values.get("speculative_num_draft_tokens")
    if settings.eagle and settings.topk == 1 and str(asked or settings.draft_tokens) != str(settings.draft_tokens):
        yield Step(
            text="speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
    if start.args.get("speculative_adaptive") is not None and start.memory.adaptive:
        yield Step(
            text="speculative_adaptive disabled: a simulated server keeps its steps. Falling back to static "
            "speculative params."
        )
    yield Step(text=f"server_args={printed(start.args, start.minor)}", after_s=1.5)
    yield Step(text="Using default HuggingFace chat template with detected content format: string", after_s=0.5)


def http_up(pid: int, host: str, port: int) -> Iterator[Step]:
    """Uvicorn's lines: HTTP answers from here on."""
    for text in (f"Started server process [{pid}]", "Waiting for application startup."):
        yield Step(text=f"INFO:     {text}")
    yield Step(text="INFO:     Application startup complete.")
    yield Step(text=f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
