"""Writes the example result documents of the report's tests: `python tests/report/make_documents.py`.

The figures are drawn from a small model of speculation (a geometric acceptance per draft token, a cost per draft
token), with a fixed seed, so that they look like a run and are the same on every machine.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

JSON = dict[str, Any]

ABOUT = {
    "copy": "code edits and lists rewritten as JSON: much of the answer stands in the prompt",
    "chat": "open questions and summaries in other words",
}
ACCEPT = {"copy": 0.80, "chat": 0.33}
DRAFTED = {"copy": 0.45, "chat": 0.12}
SHA = {
    "copy": "ab12c09f6d0e5a7d3b1f4c8e92a1765de0f3b9c4a85d217f60cbe913a7442d18",
    "chat": "cd34f1e8a90b7c6d5e4f30219a8b7c6d5e4f3021fedcba98765432100f1e2d3c",
}


def speedup(workload: str, depth: int, concurrency: int, cost: float) -> float:
    """True ratio to the baseline: tokens per step over the cost of a step."""
    return tokens_per_step(workload, depth) / (1 + cost * depth * (1 + 0.25 * (concurrency - 1)))


def accept_len(workload: str, depth: int) -> float:
    p = ACCEPT[workload]
    return (1 - p ** (depth + 1)) / (1 - p)


def tokens_per_step(workload: str, depth: int) -> float:
    return 1 + DRAFTED[workload] * (accept_len(workload, depth) - 1)


def mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


class Maker:
    """Builds one document."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.workloads: list[str] = settings["workloads"]
        self.concurrency: list[int] = settings["concurrency"]
        self.depths: list[int] = settings["depths"]
        self.rounds: int = settings["rounds"]
        self.noise: float = settings["noise"]
        self.cost: float = settings["cost"]
        self.base: float = settings["base"]
        self.start: float = settings["start_s"]
        self.refused: dict[int, str] = settings.get("refused", {})
        self.broken: dict[int, str] = settings.get("broken", {})
        self.void: dict[int, str] = settings.get("void", {})
        self.disturbed: dict[int, list[str]] = settings.get("disturbed", {})
        self.figures: dict[tuple[int, str], list[float]] = {}
        self.trials: list[JSON] = []

    def run(self) -> None:
        """Plays the schedule: baseline, then every round in its own order, then the baseline again."""
        live = [depth for depth in self.depths if depth not in self.refused]
        schedule = [(1, 0)]
        for number in range(1, self.rounds + 1):
            order = [d for d in live if (number > 1 or d != 0) and (number == 1 or d not in self.broken)]
            self.random.shuffle(order)
            schedule += [(number, depth) for depth in order]
        schedule.append((self.rounds, 0))
        clock = 0.4
        for place, (number, depth) in enumerate(schedule, start=1):
            trial = self.trial(place, number, depth, clock)
            self.trials.append(trial)
            clock = round(clock + trial["total_s"] + self.start * 0.05, 1)

    def trial(self, place: int, number: int, depth: int, at_s: float) -> JSON:
        trial: JSON = {
            "number": place, "round": number, "arm": name(depth), "status": "measured", "because": None,
            "at_s": at_s, "start_s": round(self.start * self.random.uniform(0.95, 1.1), 1), "measure_s": None,
            "total_s": None, "stop": "clean", "stop_s": round(0.1 + self.start * 0.02, 1),
            "disturbed": self.disturbed.get(place, []),
        }  # fmt: skip
        if depth in self.broken:
            trial |= {"status": "did-not-start", "because": self.broken[depth], "start_s": None}
            trial |= {"total_s": round(self.start * 0.6, 1), "stop": "already-dead", "stop_s": 0.0}
            return trial
        share = 0.3 if place in self.void else 1.0
        trial["measure_s"] = round(share * (8 + 2.5 * len(self.workloads) * len(self.concurrency)), 1)
        trial["total_s"] = round(trial["start_s"] + trial["measure_s"] + trial["stop_s"] + 0.2, 1)
        if place in self.void:
            return trial | {"status": "void", "because": self.void[place]}
        for workload in self.workloads:
            for slots in self.concurrency:
                true = self.base * (1 + 0.3 * math.log2(slots)) * (1.04 if workload == "copy" else 1.0)
                value = (
                    true * speedup(workload, depth, slots, self.cost) * math.exp(self.random.gauss(0, self.noise))
                )
                self.figures.setdefault((depth, f"{workload}@{slots}"), []).append(round(value, 2))
        return trial

    # --- the document -------------------------------------------------------------------------------------

    def measured(self) -> list[int]:
        return [depth for depth in self.depths if (depth, self.own()[0]) in self.figures]

    def own(self) -> list[str]:
        return [f"{workload}@{slots}" for slots in self.concurrency for workload in self.workloads]

    def value(self, depth: int, axis: str) -> float:
        workload, slots = axis.split("@")
        if workload != "all":
            return mean(self.figures[depth, axis])
        return mean([mean(self.figures[depth, f"{w}@{slots}"]) for w in self.workloads])

    def ratio(self, depth: int, axis: str) -> JSON:
        if depth == 0:
            return {"ratio": 1.0, "low": 1.0, "high": 1.0}
        value = self.value(depth, axis) / self.value(0, axis)
        trials = len(self.figures[depth, self.own()[0]])
        half = 2.6 * self.noise * math.sqrt(1 / trials + 1 / len(self.figures[0, self.own()[0]]))
        return {
            "ratio": round(value, 3),
            "low": round(value * math.exp(-half), 3),
            "high": round(value * math.exp(half), 3),
        }

    def arm(self, depth: int) -> JSON:
        arm: JSON = {"arm": name(depth), "depth": depth, "label": label(depth), "status": None, "because": None}
        arm |= {"fit": None, "why": None, "latency": None, "throughput": None, "accept_len": None}
        arm |= {"tokens_per_step": None, "start_s": None, "axes": {}}
        arm["trials"] = [trial["number"] for trial in self.trials if trial["arm"] == name(depth)]
        if depth in self.refused:
            return arm | {"status": "refused", "because": self.refused[depth]}
        if depth in self.broken and arm["trials"]:
            why = f"trials/{arm['trials'][0]:02d}-{name(depth)}/why.json"
            return arm | {"status": "did-not-start", "because": self.broken[depth], "why": why}
        if depth not in self.measured():
            return arm
        pooled = "all" if len(self.workloads) > 1 else self.workloads[0]
        first, last = f"{pooled}@{self.concurrency[0]}", f"{pooled}@{self.concurrency[-1]}"
        arm |= {"status": "measured", "start_s": round(self.start, 1)}
        arm["latency"] = {"tok_s": round(self.value(depth, first), 1), **self.ratio(depth, first)}
        arm["throughput"] = {"tok_s": round(self.value(depth, last), 1), **self.ratio(depth, last)}
        arm["axes"] = {axis: self.on_axis(depth, axis) for axis in self.own()}
        if depth:
            arm["accept_len"] = round(sum(accept_len(w, depth) for w in self.workloads) / len(self.workloads), 2)
            arm["tokens_per_step"] = round(mean([tokens_per_step(w, depth) for w in self.workloads]), 2)
        return arm

    def on_axis(self, depth: int, axis: str) -> JSON:
        workload, slots = axis.split("@")
        tok_s = self.value(depth, axis)
        drafted = depth * 60 * len(self.figures[depth, axis])
        rate = (accept_len(workload, depth) - 1) / depth if depth else 0.0
        jitter = 1 + 0.01 * math.log2(int(slots))
        return {
            "tok_s": round(tok_s, 1), **self.ratio(depth, axis), "values": self.figures[depth, axis],
            "ttft_ms_p50": round(9500 / self.base * int(slots) ** 0.5 * 1.9, 1),
            "tpot_ms_p50": round(1000 * int(slots) / tok_s, 1),
            "accept_len": round(accept_len(workload, depth) / jitter, 2) if depth else None,
            "tokens_per_step": round(tokens_per_step(workload, depth) / jitter, 2) if depth else None,
            "drafted_tokens": drafted if depth else None,
            "accepted_tokens": round(drafted * rate) if depth else None,
        }  # fmt: skip

    def axis(self, axis: str, drift: JSON | None) -> JSON:
        workload, slots = axis.split("@")
        values = {name(depth): round(self.value(depth, axis), 2) for depth in self.measured()}
        ratios = {name(depth): self.ratio(depth, axis) for depth in self.measured() if depth}
        best = max(values, key=lambda arm: values[arm])
        level = math.exp(-2.6 * self.noise / math.sqrt(self.rounds)) * 0.98
        ties = [arm for arm in values if values[arm] >= values[best] * level]
        better = ratios.get(ties[0], {"low": 0.0})["low"] > 1
        choice = ties[0] if better else "off"
        on = "for a single request" if slots == "1" else f"at {slots} requests at once"
        where = "" if workload == "all" or len(self.workloads) == 1 else f" on {workload}"
        if better:
            ratio, low, high = (ratios[choice][key] for key in ("ratio", "low", "high"))
            because = f"{label_of(choice)} is {ratio:.2f}x ({low:.2f}\u2013{high:.2f}) the baseline {on}{where}"
            level_ties = [label_of(arm) for arm in ties if arm != choice]
            if level_ties:
                because += f"; {' and '.join(level_ties)} {'is' if len(level_ties) == 1 else 'are'} level with it"
        else:
            because = f"no depth is better than off {on}{where}"
        return {
            "axis": axis, "workload": workload, "concurrency": int(slots), "unit": "tok/s",
            "baseline": values["off"], "values": values, "ratios": ratios, "best": best, "choice": choice,
            "ties": ties, "verdict": "better" if better else "keep", "because": because, "noise": self.noise,
            "drift": drift,
        }  # fmt: skip

    def document(self, drift: JSON | None) -> JSON:
        pooled = [f"all@{slots}" for slots in self.concurrency] if len(self.workloads) > 1 else []
        axes = [self.axis(axis, drift) for axis in [*self.own(), *pooled]] if self.measured() else []
        by_axis = {axis["axis"]: axis for axis in axes}
        kind = "all" if pooled else self.workloads[0]
        choice: JSON = {"latency": None, "throughput": None, "recommended": None, "ties": [], "because": None}
        choice["by_workload"] = {}
        verdict = None
        if axes:
            first, last = by_axis[f"{kind}@{self.concurrency[0]}"], by_axis[f"{kind}@{self.concurrency[-1]}"]
            choice |= {"latency": first["choice"], "throughput": last["choice"], "recommended": first["choice"]}
            choice |= {"ties": first["ties"], "because": first["because"]}
            choice["by_workload"] = {w: by_axis[f"{w}@{self.concurrency[0]}"]["choice"] for w in self.workloads}
            verdict = first["because"] + "."
        return {
            "workloads": [
                {"name": w, "about": ABOUT[w], "source": "built-in", "prompts": 4, "sha256": SHA[w]}
                for w in self.workloads
            ],
            "concurrency": self.concurrency, "depths": self.depths, "rounds": self.rounds, "tie_margin": 0.02,
            "settings": {"max_error_rate": 0.01, "max_loop_lag_ms": 20},
            "baseline": {"arm": "off", "depth": 0}, "arms": [self.arm(depth) for depth in self.depths],
            "axes": axes, "front": list(dict.fromkeys([choice["latency"], choice["throughput"]])) if axes else [],
            "choice": choice, "verdict": verdict, "exit_status": 10, "restarts": len(self.trials) + 1,
            "downtime_s": round(sum(trial["total_s"] for trial in self.trials), 1), "restored": True,
            "complete": True, "trials": self.trials, "warnings": [],
        }  # fmt: skip


def name(depth: int) -> str:
    return f"d{depth}" if depth else "off"


def label(depth: int) -> str:
    return f"depth {depth}" if depth else "off"


def label_of(arm: str) -> str:
    return "off" if arm == "off" else f"depth {arm[1:]}"


EMBEDDED: JSON = {
    "service": "embedded:",
    "engine": {
        "name": "llamacpp", "version": "xllamacpp 2026.10.11549",
        "command": [
            "llama-server", "-m", "SmolLM2-135M-Instruct-F32.gguf", "--host", "127.0.0.1", "--port", "18080",
            "--ctx-size", "8192", "--parallel", "4", "--threads", "2", "--spec-type", "ngram-simple",
        ],
    },
    "host": {"cpus": 2, "cpu_model": "AMD EPYC 9V74 80-Core Processor", "memory_gib": 23.4,
        "kernel": "6.1.0-18-cloud"},
}  # fmt: skip

SGLANG: JSON = {
    "service": "unit:sglang-qwen.service",
    "engine": {
        "name": "sglang", "version": "0.5.17",
        "command": [
            "python3", "-m", "sglang.launch_server", "--model-path", "/srv/models/Qwen3-30B-A3B", "--port", "30000",
            "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/srv/models/qwen3-eagle3",
            "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
            "--mem-fraction-static", "0.85", "--api-key", "[redacted]",
        ],
    },
    "host": {"cpus": 64, "cpu_model": "Intel Xeon Platinum 8480+", "memory_gib": 503.6,
        "kernel": "6.8.0-45-generic"},
}  # fmt: skip


def frame(about: JSON, started: str, finished: str | None, body: JSON) -> JSON:
    head: JSON = {"schema": "draftmark.tune/1", "draftmark": "0.1.0", **about}
    return head | {"started_at": started, "finished_at": finished} | body


def normal() -> JSON:
    maker = Maker(
        11, workloads=["copy", "chat"], concurrency=[1, 4], depths=[0, 4, 8, 16], rounds=3, noise=0.021, cost=0.012,
        base=43.0, start_s=0.8,
    )  # fmt: skip
    maker.run()
    body = maker.document({"ratio": 1.01, "low": 0.97, "high": 1.05})
    body["verdict"] = body["verdict"].rstrip(".") + "; on chat no depth is better than off."
    body["warnings"] = ["the baseline drifted by 1 % between start and end; ratios are taken within rounds"]
    return frame(EMBEDDED, "2026-11-29T17:50:27.123Z", "2026-11-29T17:55:57.001Z", body)


def inconclusive() -> JSON:
    lag = "the load generator lagged: event loop late by 38 ms (p99), limit 20 ms"
    maker = Maker(
        5, workloads=["copy", "chat"], concurrency=[1, 4], depths=[0, 4, 8, 16], rounds=3, noise=0.16, cost=0.06,
        base=43.0, start_s=0.8,
        void={4: "the server restarted during the measurement (pid 4711 became 4720)", 9: lag},
        disturbed={
            4: ["the server restarted during the measurement (pid 4711 became 4720)"],
            6: ["copy@4: another process used 0.9 of 2 CPUs"], 9: [lag],
            12: ["copy@1: another process used 1.1 of 2 CPUs", "chat@4: 2 of 48 requests failed (http-500)"],
        },
    )  # fmt: skip
    maker.run()
    body = maker.document({"ratio": 0.86, "low": 0.74, "high": 0.99})
    why = "inconclusive: the baseline drifted to 0.86x (0.74\u20130.99) between start and end"
    for axis in body["axes"]:
        axis |= {"verdict": "inconclusive", "choice": None, "because": why}
    body["choice"] = {"latency": None, "throughput": None, "recommended": None, "ties": []}
    body["choice"] |= {"because": why, "by_workload": {"copy": None, "chat": None}}
    body |= {"front": [], "exit_status": 40, "verdict": f"{why}, more than noise explains; nothing was changed."}
    body["warnings"] = [
        "2 of 13 trials are void and count nowhere",
        "2 trials were disturbed in part; those measurements count nowhere",
    ]
    return frame(EMBEDDED, "2026-11-29T18:10:00.000Z", "2026-11-29T18:14:31.500Z", body)


def eleven() -> JSON:
    dead = "CUDA out of memory. Tried to allocate 1.17 GiB. GPU 0 has a total capacity of 139.81 GiB"
    maker = Maker(
        3, workloads=["chat"], concurrency=[1], depths=list(range(11)), rounds=2, noise=0.015, cost=0.02,
        base=112.0, start_s=96.0,
        refused={1: "depth 1 drafts nothing: topk 1 with 1 step needs at least 2 draft tokens"},
        broken={10: dead},
    )  # fmt: skip
    ACCEPT["chat"], DRAFTED["chat"] = 0.71, 0.9
    try:
        maker.run()
        body = maker.document({"ratio": 1.0, "low": 0.98, "high": 1.02})
    finally:
        ACCEPT["chat"], DRAFTED["chat"] = 0.33, 0.12
    for arm in body["arms"]:
        room = 612_000 - 21_400 * arm["depth"]
        arm["fit"] = {"fits": arm["depth"] < 10, "kv_tokens": room, "max_running_requests": room // 9000}
    body["verdict"] = body["verdict"].rstrip(".") + "; depth 10 did not start."
    return frame(SGLANG, "2026-11-29T09:00:00.000Z", "2026-11-29T09:44:10.250Z", body)


def unmeasured() -> JSON:
    maker = Maker(
        1, workloads=["copy", "chat"], concurrency=[1, 8, 32], depths=[0, 2, 4, 8], rounds=3, noise=0.02, cost=0.02,
        base=112.0, start_s=96.0,
    )  # fmt: skip
    body = maker.document(None)
    body |= {"exit_status": None, "restarts": 0, "downtime_s": None, "restored": None, "complete": False}
    return frame(SGLANG, "2026-11-29T11:00:00.000Z", None, body)


DOCUMENTS = {"normal": normal, "inconclusive": inconclusive, "eleven": eleven, "unmeasured": unmeasured}


def written(document: JSON) -> str:
    """The bytes of a committed example."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for stem, make in DOCUMENTS.items():
        (DATA / f"{stem}.json").write_text(written(make()), encoding="utf-8")
