"""What a load run's figures are called, and what each of them means: the same on the terminal and on a page."""

from __future__ import annotations

from draftmark.report import figures
from draftmark.report.fields import Document, mapping, number, plain, text
from draftmark.report.figures import plural, visible
from draftmark.report.words import at_once

LOOPS = {
    "closed": "Closed loop: each slot sends its next request when its last one has ended.",
    "open": "Open loop: requests go out at their times, whatever became of the others.",
}
QUANTILES = ("mean", "p50", "p90", "p95", "p99", "max")
_OF_ANY = (
    ("tpot_ms", "time per output token"),
    ("itl_ms", "inter-token latency"),
    ("chunk_gap_ms", "gap between chunks"),
)
_CLOSED = (("ttft_ms", "time to first token"), *_OF_ANY, ("e2e_ms", "end to end"))
_OPEN = (
    ("ttft_intended_ms", "time to first token"),
    ("ttft_ms", "  from the real send"),
    *_OF_ANY,
    ("e2e_intended_ms", "end to end"),
    ("e2e_ms", "  from the real send"),
    ("queue_ms", "waiting to be sent"),
)
DEFINITIONS = (
    ("Time to first token (TTFT)", "From the send to the first chunk with text."),
    (
        "Time per output token (TPOT)",
        "(Last token \u2212 first token) \u00f7 (tokens \u2212 1), one value a request: what its reader sees.",
    ),
    (
        "Inter-token latency (ITL)",
        "The time between two arrivals, shared evenly by the tokens that came with the second; one value a token. "
        "Under speculation several tokens come at once, and a gap between chunks is no token's latency.",
    ),
    (
        "Gap between chunks",
        "The time between two chunks of the stream, whatever they carry. Other tools call it ITL.",
    ),
    ("End to end (E2E)", "From the send to the end of the answer."),
    (
        "In an open loop",
        "TTFT and E2E run from the time at which the schedule wanted the request sent, since its user has been "
        "waiting since then; the figures from the real send, which leave that waiting out, stand beside them.",
    ),
    (
        "Output tok/s",
        "Tokens that arrived in the steady window \u00f7 its length: closed loop, every slot busy; open loop, the "
        "schedule going on. Counts are the server's own.",
    ),
    ("Goodput", "Completed requests a second that kept within every limit given; a failed request does not."),
    ("Accept length", "Tokens gained per verification round, the bonus token included."),
    ("Tokens per step", "Tokens put out per pass of the model, passes without a draft included."),
    (
        "Interval",
        "Where another run of the same load would put the figure, 19 times in 20; never narrower than 0.3 ms or "
        "1 %.",
    ),
)


def latencies(level: Document) -> tuple[tuple[str, str], ...]:
    """Keys and names of a level's latencies, in the order in which they are shown."""
    return _OPEN if text(level, "loop") == "open" else _CLOSED


def loop_sentence(document: Document) -> str | None:
    """What kind of load it was; the two kinds answer different questions."""
    return LOOPS.get(text(document, "loop") or "")


def level_title(level: Document) -> str:
    """`copy, 4 at once`; `copy, 20 requests/s (poisson), at most 8 at once`."""
    slots = number(level, "concurrency")
    named = [text(level, "workload")]
    if text(level, "loop") == "open":
        kind = text(mapping(level, "arrival"), "kind")
        rate = number(mapping(level, "arrival"), "rate_req_s") or number(level, "request_rate_wanted")
        named.append(f"{_rate(rate)} requests/s" + (f" ({kind})" if kind else ""))
        named.append(f"at most {int(slots)} at once" if slots else None)
    elif slots is not None:
        named.append(at_once(int(slots)))
    return ", ".join(part for part in named if part) or "load"


def errors(level: Document) -> str:
    """`no errors`; `errors: 2 http-500, 1 reset`; with what was cut or never sent."""
    if level.get("errors") is None:
        said = "errors not counted"
    else:
        kinds = mapping(level, "errors")
        counted = ", ".join(f"{plain(kinds[kind])} {visible(str(kind))}" for kind in kinds)
        said = f"errors: {counted}" if counted else "no errors"
    if cut := number(level, "cut"):
        said += f"; {plural(cut, 'request')} cut short by us"
    for reason, count in mapping(level, "unsent").items():
        said += f"; {plain(count)} not sent ({visible(str(reason))})"
    return said


def counted(level: Document) -> str:
    """`48 requests in 12.3 s`; `144 requests in 3 runs of 12.3 s`."""
    requests, took = plural(number(level, "requests"), "request"), figures.duration(number(level, "duration_s"))
    repeats = number(level, "repeats")
    return f"{requests} in {repeats:.0f} runs of {took}" if repeats and repeats > 1 else f"{requests} in {took}"


def rates(level: Document) -> str:
    """Output tokens per second, and how fast requests came and were answered."""
    said = f"output {figures.rate(number(level, 'output_tok_s'))} tok/s in all, prompts read included"
    if (decode := number(level, "decode_tok_s")) is not None:
        said += f"; decode {figures.rate(decode)} tok/s a request"
    return said


def request_rates(level: Document) -> str | None:
    """Requests per second: wanted, sent, completed."""
    parts = [
        f"{_rate(value)} {name}"
        for key, name in (
            ("request_rate_wanted", "wanted"),
            ("request_rate_sent", "sent"),
            ("completed_req_s", "completed"),
        )
        if (value := number(level, key)) is not None
        and (key != "request_rate_sent" or text(level, "loop") == "open")
    ]
    said = f"requests a second: {', '.join(parts)}" if parts else ""
    if (total := number(level, "total_tok_s")) is not None:
        said += f"{'; ' if said else ''}{figures.rate(total)} tok/s with the prompts' tokens"
    return said or None


def goodput(level: Document) -> str | None:
    """`goodput 18.2 requests/s: 184 of 200 within ttft 500 ms, tpot 30 ms`."""
    found = mapping(level, "goodput")
    if not found:
        return None
    limits = mapping(found, "limits_ms")
    within = ", ".join(f"{visible(str(name))} {plain(limits[name]).removesuffix('.0')} ms" for name in limits)
    good, of = figures.count(number(found, "good")), figures.count(number(found, "requests"))
    return f"goodput {_rate(number(found, 'req_s'))} requests/s: {good} of {of} within {within}"


def acceptance(level: Document) -> str | None:
    """`accept length 3.50, tokens per step 1.60; 3.2 tokens a chunk`."""
    parts = [
        f"{name} {figures.length(value)}"
        for name, key in (("accept length", "accept_len"), ("tokens per step", "tokens_per_step"))
        if (value := number(level, key)) is not None
    ]
    if (tokens := number(mapping(level, "chunk_tokens"), "mean")) is not None:
        parts.append(f"{figures.length(tokens)} tokens a chunk")
    return ", ".join(parts) or None


def interval(level: Document, key: str) -> str:
    """`98.1` dash `104`: where another run would put that figure."""
    found = mapping(mapping(level, "intervals"), key)
    low, high = number(found, "low"), number(found, "high")
    if low is None or high is None:
        return figures.UNKNOWN
    shown = figures.rate if key.endswith("tok_s") else figures.millis
    return f"{shown(low)}{figures.DASH}{shown(high)}"


def again(level: Document) -> str | None:
    """The intervals of the figures that are quoted most, in a sentence."""
    heads = mapping(level, "headline")
    ttft, e2e = text(heads, "ttft") or "ttft_ms", text(heads, "e2e") or "e2e_ms"
    asked = (("tok/s", "output_tok_s"), ("TTFT", f"{ttft}.p50"), ("TPOT", "tpot_ms.p50"), ("E2E", f"{e2e}.p50"))
    parts = [f"{name} {found}" for name, key in asked if (found := interval(level, key)) != figures.UNKNOWN]
    return f"another run, 19 times in 20 (p50): {', '.join(parts)}" if parts else None


def _rate(value: float | None) -> str:
    return figures.UNKNOWN if value is None else f"{value:.3g}"
