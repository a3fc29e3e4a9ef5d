"""The roofline in sentences, for people who wonder what is worth a restart."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.engines.roofline.measured import Measured
from draftmark.engines.roofline.passes import distinct_experts
from draftmark.engines.roofline.rounds import Roofline, Round
from draftmark.engines.roofline.stack import EXPERTS

_DENSE = "dense MLPs"
_NAMED_PARTS = 3
_HALF = 0.5


def sentences(
    roofline: Roofline,
    depth: int,
    levels: Sequence[int],
    context: float,
    measured: Sequence[Measured] = (),
) -> tuple[str, ...]:
    """What bounds the rounds of one depth, how long they take at least, and what its drafts can gain.

    Args:
        roofline: Of the service.
        depth: 0 for the service without drafts alone.
        levels: Concurrencies, at least one.
        context: Tokens behind each request.
        measured: Rounds of that service, as a run saw them.
    """
    told = [_bound(roofline, depth, levels, context)]
    if roofline.served.shape.experts and depth:
        told.append(_shared(roofline, depth, levels))
    told += [_rounds(roofline, depth, level, context, measured) for level in _ends(levels)]
    if depth and not any(_at(measured, 0, level) for level in levels):
        told.append(
            f"rounds that take longer than their floors gain more from drafts, up to {depth + 1} times at depth "
            f"{depth}: with --measured RUN the measured ones are shown beside them"
        )
    return tuple(told)


def _ends(levels: Sequence[int]) -> tuple[int, ...]:
    """The least and the most; the document has them all."""
    return tuple(dict.fromkeys((min(levels), max(levels))))


def _bound(roofline: Roofline, depth: int, levels: Sequence[int], context: float) -> str:
    """What the matrices that weigh most wait for, and whether their kernels are worth tuning."""
    tokens = "c·(k+1) tokens" if depth else "c tokens"
    part, subject = _DENSE, f"dense GEMMs read their weights once for {tokens}"
    if roofline.served.shape.experts:
        part, subject = EXPERTS, f"expert GEMMs read weights for {tokens} at {_width(roofline)}"
    since = roofline.compute_bound_from(part, depth, context)
    at = f" at depth {depth}" if depth else ""
    if since is not None and since <= max(levels):
        return (
            f"{subject}: compute-bound from c = {since:,} on{at}; there each drafted token costs arithmetic, and "
            "better kernels can help"
        )
    until = "at any c" if since is None else f"up to c = {since - 1:,}"
    return f"{subject}: memory-bound {until}{at}; tuning their kernels for arithmetic cannot help, drafting can"


def _width(roofline: Roofline) -> str:
    """Of one expert on one card."""
    served = roofline.served
    whole = next((each.rows for each in served.shape.tensors if each.name.endswith(".experts.*.up_proj")), 0)
    split = max(1, served.tensor_parallel // max(1, served.expert_parallel))
    if split == 1:
        return f"expert width {whole:,}"
    return f"expert width {whole // split:,} ({whole:,} over {split} cards)"


def _shared(roofline: Roofline, depth: int, levels: Sequence[int]) -> str:
    """How many experts are read for each token that is gained at best."""
    shape = roofline.served.shape
    met = max(1, shape.experts_per_token)

    def read(level: int, tokens: int) -> float:
        return distinct_experts(shape.experts, met, level * tokens) / (level * tokens)

    told = [f"{read(level, 1):.1f} and {read(level, depth + 1):.1f} ({_at_once(level)})" for level in _ends(levels)]
    return (
        f"of the {shape.experts} experts of a layer so many are read for each token gained, without drafts and at "
        f"depth {depth} with every draft accepted: {', '.join(told)}"
    )


def _rounds(roofline: Roofline, depth: int, level: int, context: float, measured: Sequence[Measured]) -> str:
    """A round without drafts and one with them, at one concurrency."""
    off, deep = (roofline.round(level, each, context) for each in (0, depth))
    behind = f"{_at_once(level)}, {context:,.0f} tokens of context"
    told = f"{behind}: a round takes at least {_ms(off.floor_s * 1000)} without drafts"
    if depth:
        gain = roofline.gain_at_floor(level, depth, context)
        told += (
            f" and {_ms(deep.floor_s * 1000)} at depth {depth} ({_parts(deep)}); at these floors {depth} accepted "
            f"drafts a round are {gain:.2f} times as fast"
        )
    else:
        told += f" ({_parts(off)})"
    for each in sorted({0, depth}):
        if (found := _at(measured, each, level)) is not None:
            told += f"; {_beside(roofline, found, context)}"
    plain = _at(measured, 0, level)
    if not depth or plain is None:
        return told
    most = roofline.gain_ceiling(plain.decoding, depth, context, plain.round_ms / 1000)
    return f"{told}; over the round measured without drafts they gain at most {most:.2f} times"


def _beside(roofline: Roofline, found: Measured, context: float) -> str:
    kind = f"at depth {found.depth}" if found.depth else "without drafts"
    decoding = "" if found.concurrency == 1 else f", {found.decoding:.0f} decoding"
    told, times = f"measured {kind} {_ms(found.round_ms)}{decoding}", found.over_floor(roofline, context)
    if times < 1 and roofline.served.shape.experts:
        return f"{told}: {times:.2f} times its floor, so its tokens meet the same experts more often than by chance"
    return f"{told}: {times:.1f} times its floor"


def _parts(whole: Round) -> str:
    """The largest, and what the round waits for."""
    shares = whole.shares()
    named = [f"{each.name} {each.floor_s / whole.floor_s:.0%}" for each in shares[:_NAMED_PARTS]]
    computing = sum(each.floor_s for each in shares if each.bound == "compute") / whole.floor_s
    bound = "memory" if computing < _HALF else "arithmetic"
    return f"{', '.join(named)}; it waits for {bound}"


def _at(measured: Sequence[Measured], depth: int, level: int) -> Measured | None:
    return next((each for each in measured if (each.depth, each.concurrency) == (depth, level)), None)


def _at_once(level: int) -> str:
    """`1 request`, `32 at once`."""
    return "1 request" if level == 1 else f"{level:,} at once"


def _ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms"
