"""`/metrics` of a simulated server: names of 0.5.14 to 0.5.23, as far as they mean something here. Pure."""

from __future__ import annotations

from draftmark.sim.memory import Memory
from draftmark.sim.scheduler import Scheduler


def exposition(scheduler: Scheduler, memory: Memory, model: str) -> str:
    """The text of Prometheus' format."""
    totals, settings = scheduler.totals, memory.settings
    labels = f'{{engine_type="unified",model_name="{model}",moe_ep_rank="0",pp_rank="0",tp_rank="0"}}'
    share = scheduler.used / max(1, memory.pools.tokens)
    slots = memory.pools.slots
    gauges: dict[str, float] = {
        "max_total_num_tokens": memory.pools.tokens,
        "context_len": memory.context,
        "num_running_reqs": len(scheduler.running),
        "num_queue_reqs": len(scheduler.waiting),
        "gen_throughput": totals.throughput,
        "token_usage": share,
        "full_token_usage": share,
        "mamba_usage": scheduler.slots_used / slots if slots else 0.0,
        "num_used_tokens": scheduler.used,
        "num_retracted_reqs": 0,
        "spec_accept_length": totals.accept_len,
        "spec_num_steps": settings.steps,
        "spec_num_draft_tokens": settings.draft_tokens,
    }
    counters: dict[str, float] = {
        "prompt_tokens_total": totals.prompt_tokens,
        "generation_tokens_total": totals.output_tokens,
        "num_requests_total": totals.requests,
        "cached_tokens_total": 0,
        "num_retracted_requests_total": totals.retracted,
        "spec_verify_calls_total": totals.all_rounds,
    }
    lines: list[str] = []
    for kind, figures in (("gauge", gauges), ("counter", counters)):
        for name, value in figures.items():
            lines += [f"# HELP sglang:{name} simulated", f"# TYPE sglang:{name} {kind}"]
            lines.append(f"sglang:{name}{labels} {float(value)}")
    return "\n".join(lines) + "\n"
