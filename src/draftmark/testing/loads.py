"""What a load measures of a world that a test owns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from draftmark.load.client import LoadRun
from draftmark.model import ClientHealth, Counters, Hand, Intervention, RequestRecord, Workload
from draftmark.testing.fakes import FakeWorld


class FakeLoad:
    """tune.trial.Load whose figures are the world's truth, times its drift, times a trial's noise."""

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def __call__(
        self,
        base_url: str,
        workload: Workload,
        *,
        concurrency: int,
        repeat: int,
        warmup: int,
        extra: dict[str, object],
        request_timeout_s: float,
        headers: dict[str, str],
        first_tag: int,
        on_record: Callable[[RequestRecord], None],
        on_progress: Callable[[int, int, float | None, int], None],
    ) -> LoadRun:
        """Draw one measurement."""
        world, arm = self._world, self._world.running
        if arm is None:
            raise AssertionError("measured without a running server")
        world.events.append(f"measure {workload.name}@{concurrency}")
        speed = world.truth_tok_s(arm, workload.name, concurrency) * world.drift(world.clock.now_s)
        speed *= math.exp(world.rng.gauss(0.0, world.noise))
        prompts = workload.prompts * repeat
        records = []
        at_s = 0.0
        for number, start in enumerate(range(0, len(prompts), concurrency), start=first_tag):
            batch = prompts[start : start + concurrency]
            for prompt in batch:
                record = _request(
                    f"bench-{number}", workload.name, prompt.id, prompt.max_tokens, concurrency, speed, at_s
                )
                if world.chain is not None and arm.depth:
                    record = replace(record, accepted_histogram=self._rounds(prompt.max_tokens, arm.depth))
                records.append(record)
                on_record(record)
            at_s = records[-1].end_at_s
        world.clock.sleep(at_s)
        tokens = sum(record.output_tokens or 0 for record in records)
        accepted = int(tokens * world.accept) if arm.depth and arm.name not in world.silent_off else 0
        old = world.counted
        world.counted = Counters(
            drafts=(old.drafts or 0) + accepted // max(1, arm.depth // 2),
            drafted_tokens=(old.drafted_tokens or 0) + 2 * accepted,
            accepted_tokens=(old.accepted_tokens or 0) + accepted,
            output_tokens=(old.output_tokens or 0) + tokens,
            raw="fake_tokens_total 1\n",
        )
        if arm.name in world.dies_in:
            world.running = None
        if (hand := world.hands_in.get(arm.name)) is not None:
            world.hand = Intervention(
                hand, f"somebody else has {hand.value} fake.service", "systemd: Stopping fake"
            )
            world.running, world.pid = (None if hand is Hand.STOPPED else arm), world.pid + 1
        return LoadRun(
            records=tuple(records),
            client=ClientHealth(loop_lag_ms_p99=0.5, cpu_s=0.01),
            assumptions=(),
            stopped_because=None,
        )

    def _rounds(self, tokens: int, depth: int) -> tuple[int, ...]:
        """Rounds by drafts accepted, until there are so many tokens."""
        found, done = [0] * (depth + 1), 0
        while done < tokens:
            taken = next((j for j in range(depth) if self._world.rng.random() > (self._world.chain or 0.0)), depth)
            found[taken] += 1
            done += taken + 1
        return tuple(found)


def _request(
    tag: str, workload: str, prompt: str, tokens: int, concurrency: int, tok_s: float, sent_at_s: float
) -> RequestRecord:
    """A request that streams `tokens` evenly, so that the level's aggregate is `tok_s`."""
    gap = concurrency / tok_s
    first = 0.1
    chunks = tuple((round(first + i * gap, 6), float(i + 1)) for i in range(tokens))
    last = sent_at_s + chunks[-1][0]
    return RequestRecord(
        tag=tag,
        workload=workload,
        prompt_id=prompt,
        concurrency=concurrency,
        sent_at_s=sent_at_s,
        first_byte_at_s=sent_at_s + first,
        first_token_at_s=sent_at_s + first,
        last_token_at_s=last,
        end_at_s=last,
        chunks=chunks,
        chunk_counts="server",
        prompt_tokens=10,
        output_tokens=tokens,
        finish="length",
    )
