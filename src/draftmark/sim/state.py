"""`/server_info` and its kin. Pure."""

from __future__ import annotations

from typing import Any

from draftmark.sim.graphs import sets_of
from draftmark.sim.loading import GRAPH_KEYS
from draftmark.sim.memory import GIB
from draftmark.sim.scheduler import Scheduler
from draftmark.sim.setup import Setup


def server_info(setup: Setup, scheduler: Scheduler, status: str, behind_s: float) -> dict[str, Any]:
    """The resolved arguments, and what the scheduler made of them. `simulated` is in no real server's answer."""
    pools = setup.memory.pools
    return {
        **setup.args,
        "status": status,
        "max_total_num_tokens": pools.tokens,
        "max_req_input_len": min(setup.memory.context, pools.tokens) - 6,
        "internal_states": [_internal(setup, scheduler)],
        "version": setup.words.version,
        "simulated": {"model": setup.words.model, "gpus": setup.words.gpus, "behind_s": round(behind_s, 3)},
    }


def _internal(setup: Setup, scheduler: Scheduler) -> dict[str, Any]:
    memory, totals = setup.memory, scheduler.totals
    sizes = {each.name: each.bytes / GIB for each in sets_of(memory, setup.rules.minor)}
    graph: object = {key: round(sizes.get(name, 0.0), 3) for key, name in GRAPH_KEYS.items()}
    if setup.rules.minor <= 14:
        graph = round(sum(sizes.values()), 3)
    found = {
        **setup.args,
        "last_gen_throughput": totals.throughput,
        "memory_usage": {
            "weight": round(memory.weights / GIB, 3),
            "kvcache": round(max(0, memory.pools.tokens) * memory.case.parts()[0].target / GIB, 3),
            "token_capacity": memory.pools.tokens,
            "graph": graph,
        },
        "effective_max_running_requests_per_dp": memory.pools.running,
    }
    if memory.settings.algorithm is not None:
        found["avg_spec_accept_length"] = totals.accept_len or 1.0
    return found


def model_info(setup: Setup) -> dict[str, Any]:
    """Answers as soon as HTTP is up."""
    path = setup.args["model_path"]
    return {
        "model_path": path,
        "tokenizer_path": path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "model_type": setup.model.config.get("model_type"),
        "architectures": setup.model.config.get("architectures"),
    }


def models(setup: Setup, created: int) -> dict[str, Any]:
    """`/v1/models`."""
    name = setup.args["served_model_name"]
    entry = {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": setup.memory.context,
    }
    return {"object": "list", "data": [entry]}


def loads(setup: Setup, scheduler: Scheduler) -> dict[str, Any]:
    """`/v1/loads`: one rank."""
    running = len(scheduler.running)
    waiting = scheduler.in_flight - running
    return {
        "version": setup.words.version,
        "dp_rank_count": 1,
        "loads": [
            {
                "dp_rank": 0,
                "num_running_reqs": running,
                "num_waiting_reqs": waiting,
                "num_used_tokens": scheduler.used,
                "max_total_num_tokens": setup.memory.pools.tokens,
                "max_running_requests": setup.memory.pools.running,
                "token_usage": scheduler.used / max(1, setup.memory.pools.tokens),
                "gen_throughput": scheduler.totals.throughput,
            }
        ],
    }
