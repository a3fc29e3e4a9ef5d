"""The same measurement under other tools' names: `vllm bench serve --save-result`, SGLang's `bench_serving`. Pure.

A figure stands under their key as they would have computed it, also where Draftmark's own of that name is another:
a reader of theirs must be able to hold it against their files. Where that is so, `draftmark_note` says it. A figure
that was not seen is null, where they write 0.

Read in vllm/benchmarks/serve.py (0.33) and sglang/bench_serving.py (0.5.17); both keep keys that they do not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from draftmark.load.spreads import percentile
from draftmark.load.timings import CUT, chunk_gaps_ms, e2e_ms, intended_s, token_gaps_ms, tokens_of, ttft_ms
from draftmark.model import Measurement, RequestRecord

Document = dict[str, object]

VLLM_NOTE = (
    "Measured by draftmark, in vLLM's definitions: itl is the gap between two chunks, however many tokens they "
    "carry, and max_output_tokens_per_s counts chunks. draftmark_*_itl_ms is per token. ttft and e2el run from the "
    "real send; draftmark_*_ttft_intended_ms and *_e2el_intended_ms from the intended one. Not seen is null."
)
SGLANG_NOTE = (
    "Measured by draftmark, in SGLang's definitions. accept_length is of this measurement, not since the server's "
    "start. Nothing was tokenised again. e2e_latency and ttft run from the real send; "
    "draftmark_*_ttft_intended_ms and *_e2e_latency_intended_ms from the intended one. Values not seen are null."
)

_VLLM_BACKENDS = {"sglang": "sglang", "llamacpp": "llama.cpp"}
_PERCENTILES = (90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What stands in such a file beside the figures.

    Attributes:
        api: `openai-chat`, `openai`, `sglang` or `llamacpp`.
        engine: Name of the engine that served.
        model: As the server calls it; None when unknown.
        date: Local time of the begin, `20261130-034000`.
        request_rate: Of an open loop's schedule, as it was asked for; None is what its times come to.
        burstiness: Of the schedule; 1 is Poisson, which is also what they call a closed loop's.
        goodput_req_s: Requests a second within the limits that were given; None without limits.
    """

    api: str
    engine: str
    model: str | None
    date: str
    request_rate: float | None = None
    burstiness: float = 1.0
    goodput_req_s: float | None = None


def vllm_result(records: Sequence[RequestRecord], m: Measurement, about: About) -> Document:
    """As `vllm bench serve --save-result --save-detailed` writes it.

    Args:
        records: Of this measurement, in the order sent, warm-up included.
        m: What they came to.
        about: The rest.
    """
    told = _told(records)
    done = [r for r in told if r.error is None]
    latencies = {
        "ttft": [ms for r in done if (ms := ttft_ms(r)) is not None],
        "tpot": [ms for r in done if (ms := _their_tpot_ms(r, _to_last_chunk_ms(r))) is not None],
        "itl": [gap for r in done for gap in chunk_gaps_ms(r)],
        "e2el": [_to_last_chunk_ms(r) for r in done],
    }
    backend = _VLLM_BACKENDS.get(about.api, about.api)
    return {
        "date": about.date,
        "endpoint_type": backend,
        "backend": backend,
        "label": backend,
        "model_id": about.model,
        "tokenizer_id": None,
        "num_prompts": len(told),
        "request_rate": _rate(m, about),
        "burstiness": about.burstiness,
        "max_concurrency": m.concurrency or None,
        "duration": m.duration_s,
        "completed": m.requests,
        "failed": len(told) - len(done),
        "total_input_tokens": m.prompt_tokens or 0,
        "total_output_tokens": m.output_tokens,
        "request_throughput": _per_s(m.requests, m),
        "request_goodput": about.goodput_req_s,
        "output_throughput": _per_s(m.output_tokens, m),
        "total_token_throughput": _per_s((m.prompt_tokens or 0) + m.output_tokens, m),
        **_details(told, [[gap / 1e3 for gap in chunk_gaps_ms(r)] if r.error is None else [] for r in told]),
        "start_times": [r.sent_at_s for r in told],
        "max_output_tokens_per_s": _peak(done, [[r.sent_at_s + at for at, _ in r.chunks] for r in done]),
        "max_concurrent_requests": _peak_concurrency((r.sent_at_s, r.end_at_s) for r in done),
        **_statistics(latencies),
        **_vllm_acceptance(m),
        **_own("itl", [ms for r in done for ms in token_gaps_ms(r)]),
        **_intended(done, m, "e2el"),
        "draftmark_note": VLLM_NOTE,
    }


def sglang_result(records: Sequence[RequestRecord], m: Measurement, about: About) -> Document:
    """As a line of `python -m sglang.bench_serving --output-file … --output-details`; arguments as above."""
    told = _told(records)
    done = [r for r in told if r.error is None]
    per_token = [token_gaps_ms(r) for r in told]
    latencies = {
        "e2e_latency": [e2e_ms(r) for r in done],
        "ttft": [ms for r in done if (ms := ttft_ms(r)) is not None],
        "tpot": [ms for r in done if (ms := _their_tpot_ms(r, e2e_ms(r))) is not None],
        "itl": [ms for r, own in zip(told, per_token, strict=True) if r.error is None for ms in own],
    }
    arrived = [
        [r.first_token_at_s + at / 1e3 for at in accumulate(own, initial=0.0)]
        for r, own in zip(told, per_token, strict=True)
        if r.error is None and r.first_token_at_s is not None
    ]
    return {
        "tag": None,
        "backend": _sglang_backend(about),
        "dataset_name": m.workload,
        "request_rate": _rate(m, about),
        "max_concurrency": m.concurrency or None,
        "sharegpt_output_len": None,
        "random_input_len": None,
        "random_output_len": None,
        "random_range_ratio": None,
        "server_info": None,
        "duration": m.duration_s,
        "completed": m.requests,
        "total_input_tokens": m.prompt_tokens or 0,
        "total_input_text_tokens": m.prompt_tokens or 0,
        "total_input_vision_tokens": 0,
        "total_output_tokens": m.output_tokens,
        "total_output_tokens_retokenized": None,
        "request_throughput": _per_s(m.requests, m),
        "input_throughput": _per_s(m.prompt_tokens or 0, m),
        "output_throughput": _per_s(m.output_tokens, m),
        "total_throughput": _per_s((m.prompt_tokens or 0) + m.output_tokens, m),
        **_statistics(latencies),
        "max_itl_ms": max(latencies["itl"], default=None),
        "concurrency": _per_s(math.fsum(latencies["e2e_latency"]) / 1e3, m),
        "accept_length": m.acceptance.accept_len if m.acceptance else None,
        "max_output_tokens_per_s": _peak(done, arrived),
        "max_concurrent_requests": _busiest_second(done),
        **_details(
            told,
            [[ms / 1e3 for ms in own] if r.error is None else [] for r, own in zip(told, per_token, strict=True)],
        ),
        **_intended(done, m, "e2e_latency"),
        "draftmark_note": SGLANG_NOTE,
    }


# --- parts ------------------------------------------------------------------------------------------------


def _told(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Neither tool counts warm-up, and neither has a word for what we broke off ourselves."""
    return [r for r in records if not r.warmup and r.error != CUT]


def _details(told: Sequence[RequestRecord], itls: Sequence[Sequence[float]]) -> Document:
    """A value a request, in seconds; of a failed one 0, as both tools write it."""
    return {
        "input_lens": [r.prompt_tokens or 0 for r in told],
        "output_lens": [tokens_of(r) if r.error is None else 0 for r in told],
        "ttfts": [(ttft_ms(r) or 0.0) / 1e3 if r.error is None else 0.0 for r in told],
        "itls": itls,
        "generated_texts": ["" for _ in told],
        "errors": [f"{r.error}: {r.error_detail or ''}" if r.error is not None else "" for r in told],
    }


def _statistics(latencies: dict[str, list[float]]) -> Document:
    out: Document = {}
    for name, values in latencies.items():
        ranked = sorted(values)
        mean = math.fsum(ranked) / len(ranked) if ranked else None
        out[f"mean_{name}_ms"] = mean
        out[f"median_{name}_ms"] = percentile(ranked, 50)
        out[f"std_{name}_ms"] = (
            None if mean is None else math.sqrt(math.fsum((v - mean) ** 2 for v in ranked) / len(ranked))
        )
        out |= {f"p{q}_{name}_ms": percentile(ranked, q) for q in _PERCENTILES}
    return out


def _to_last_chunk_ms(record: RequestRecord) -> float:
    """Of vLLM: its latency ends with the last chunk, not with the answer."""
    if record.last_token_at_s is None:
        return e2e_ms(record)
    return (record.last_token_at_s - record.sent_at_s) * 1e3


def _their_tpot_ms(record: RequestRecord, latency_ms: float) -> float | None:
    """Both: (latency - TTFT) / (tokens - 1)."""
    first, tokens = ttft_ms(record), tokens_of(record)
    return (latency_ms - first) / (tokens - 1) if first is not None and tokens > 1 else None


def _per_s(amount: float, m: Measurement) -> float | None:
    return amount / m.duration_s if m.requests and m.duration_s > 0 else None


def _rate(m: Measurement, about: About) -> object:
    """Requests per second; both tools call a closed loop's infinite, and write it so."""
    return (about.request_rate or m.request_rate_wanted) if m.loop == "open" else "inf"


def _peak(done: Sequence[RequestRecord], arrived: Sequence[Sequence[float]]) -> float | None:
    """Most arrivals in one of the seconds that begin with the first send."""
    if not done:
        return None
    begin = min(r.sent_at_s for r in done)
    seconds: dict[int, int] = {}
    for times in arrived:
        for at in times:
            seconds[int(at - begin)] = seconds.get(int(at - begin), 0) + 1
    return float(max(seconds.values())) if seconds else None


def _peak_concurrency(spans: Iterable[tuple[float, float]]) -> int:
    """Most requests at one moment; one that ends as another begins makes room for it."""
    events = sorted(event for begin, end in spans for event in ((begin, 1), (end, -1)))
    return max(accumulate(change for _, change in events), default=0)


def _busiest_second(done: Sequence[RequestRecord]) -> int:
    """Most requests that were under way at some time of one second."""
    begin = min((r.sent_at_s for r in done), default=0.0)
    seconds: dict[int, int] = {}
    for r in done:
        for second in range(int(r.sent_at_s - begin), math.ceil(r.end_at_s - begin)):
            seconds[second] = seconds.get(second, 0) + 1
    return max(seconds.values(), default=0)


def _vllm_acceptance(m: Measurement) -> Document:
    found = m.acceptance
    if found is None or not found.drafts or not found.drafted_tokens or found.accepted_tokens is None:
        return {}
    rounds = found.histogram
    whole = sum(rounds)
    return {
        "spec_decode_acceptance_rate": 100 * found.accepted_tokens / found.drafted_tokens,
        "spec_decode_acceptance_length": found.accept_len,
        "spec_decode_num_drafts": found.drafts,
        "spec_decode_draft_tokens": found.drafted_tokens,
        "spec_decode_accepted_tokens": found.accepted_tokens,
        "spec_decode_per_position_acceptance_rates": [sum(rounds[i:]) / whole for i in range(1, len(rounds))]
        if whole
        else [],
    }


def _sglang_backend(about: About) -> str:
    if about.api == "sglang":
        return "sglang"
    family = "vllm" if about.engine == "vllm" else "sglang-oai"
    return f"{family}-chat" if about.api == "openai-chat" else family


def _own(name: str, values: Sequence[float]) -> Document:
    ranked = sorted(values)
    return {
        f"draftmark_median_{name}_ms": percentile(ranked, 50),
        f"draftmark_p99_{name}_ms": percentile(ranked, 99),
    }


def _intended(done: Sequence[RequestRecord], m: Measurement, e2e: str) -> Document:
    """What their latencies leave out when requests wait for a slot."""
    if m.loop != "open":
        return {}
    read: dict[str, Callable[[RequestRecord], float | None]] = {
        "ttft": lambda r: ttft_ms(r, intended=True),
        e2e: lambda r: (r.end_at_s - intended_s(r)) * 1e3,
    }
    out: Document = {}
    for name, of in read.items():
        out |= _own(f"{name}_intended", [ms for r in done if (ms := of(r)) is not None])
    return out
