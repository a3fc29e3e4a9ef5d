from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import UsageError
from draftmark.load.plan import LoadPlan, Stop
from draftmark.model import Message, Prompt, Workload

from .driving import plan, prompts

IDS = Workload("w", (Prompt("p", (), 8, token_ids=(1, 2)),))
TALK = Workload(
    "w", (Prompt("a", (Message("user", "1"),), 8, follow_ups=("2", "3")), Prompt("b", (Message("user", "1"),), 8))
)


def test_warm_up_then_every_prompt_in_turn() -> None:
    jobs = list(plan(prompts(2), repeat=2, warmup=3, first_tag=5).jobs())
    assert [j.tag for j in jobs] == [f"bench-{n}" for n in range(5, 12)]
    assert [j.prompt.id for j in jobs] == ["p0", "p1", "p0", "p0", "p1", "p0", "p1"]
    assert [j.warmup for j in jobs] == [True] * 3 + [False] * 4
    assert {j.at_s for j in jobs} == {None}


def test_an_open_loop_asks_as_often_as_its_schedule_says() -> None:
    p = plan(prompts(2), send_at_s=(0.0, 0.5, 0.5, 2.0, 9.0), repeat=40)
    assert (p.open, p.conversations, p.total) == (True, 5, 5)
    assert [(j.at_s, j.prompt.id) for j in p.jobs()] == [
        (0.0, "p0"),
        (0.5, "p1"),
        (0.5, "p0"),
        (2.0, "p1"),
        (9.0, "p0"),
    ]


def test_the_warm_up_of_an_open_loop_comes_before_the_begin_at_its_pace() -> None:
    p = plan(send_at_s=(0.0, 0.25, 0.5, 0.75), warmup=2)
    assert p.lead_s == 0.5
    assert [(j.at_s, j.warmup) for j in p.jobs()] == [
        (-0.5, True),
        (-0.25, True),
        *((at, False) for at in (0.0, 0.25, 0.5, 0.75)),
    ]
    assert plan(send_at_s=(5.0, 500.0), warmup=3).lead_s == 3.0  # a sparse trace is not waited for
    assert plan(send_at_s=(3.0,), warmup=3).lead_s == 0.0


def test_follow_ups_are_requests_too() -> None:
    assert plan(TALK, repeat=2).total == 8
    assert plan(TALK, send_at_s=(0.0, 1.0, 2.0)).total == 7
    assert plan(TALK, send_at_s=(0.0, 1.0, 2.0)).conversations == 3


def test_think_times_are_taken_in_turn() -> None:
    p = plan(TALK, think_s=(1.0, 2.0, 3.0), warmup=1)
    warm, first, second = p.jobs()
    assert [p.think(warm, 0), p.think(warm, 1)] == [0.0, 0.0]
    assert [p.think(first, turn) for turn in range(3)] == [1.0, 2.0, 3.0]
    assert p.think(second, 0) == 2.0
    opened = plan(TALK, think_s=(1.0, 2.0, 3.0), send_at_s=(0.0, 1.0))
    first, _ = opened.jobs()
    assert [opened.think(first, turn) for turn in range(3)] == [0.0, 2.0, 3.0]


@given(
    processes=st.integers(1, 5),
    slots=st.integers(5, 12),
    warmup=st.integers(0, 9),
    count=st.integers(1, 9),
    opened=st.booleans(),
)
def test_the_parts_are_the_whole(processes: int, slots: int, warmup: int, count: int, opened: bool) -> None:
    times = {"send_at_s": tuple(i / 4 for i in range(count))} if opened else {}
    whole = plan(TALK, concurrency=slots, warmup=warmup, **times)
    parts = [replace(whole, part=(k, processes)) for k in range(processes)]
    jobs = [job for part in parts for job in part.jobs()]
    assert sorted(jobs, key=lambda j: int(j.tag[6:])) == list(whole.jobs())
    assert sum(part.total for part in parts) == whole.total
    assert sum(part.slots for part in parts) == whole.slots == slots
    assert {part.lead_s for part in parts} == {whole.lead_s}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"send_at_s": ()}, "no time in it"),
        ({"send_at_s": (1.0, 0.5)}, "does not go forward"),
        ({"send_at_s": (-1.0,)}, "does not go forward"),
        ({"send_at_s": (float("nan"),)}, "does not go forward"),
        ({"send_at_s": (float("inf"),)}, "does not go forward"),
        ({"send_at_s": (0.0,), "concurrency": -1}, "concurrency is -1"),
        ({"think_s": (-1.0,)}, "think time"),
        ({"think_s": (float("nan"),)}, "think time"),
        ({"part": (2, 2)}, "cannot be shared"),
        ({"part": (0, 3), "concurrency": 2}, "2 slots cannot be shared among 3"),
        ({"workload": IDS}, "made of token ids"),
        ({"workload": Workload("w", (replace(IDS.prompts[0], token_ids=()),)), "api": "openai"}, "no token"),
        ({"workload": Workload("w", (replace(IDS.prompts[0], follow_ups=("x",)),)), "api": "openai"}, "follow-up"),
    ],
)
def test_plans_that_cannot_be_carried_out(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**options)
    assert words in caught.value.what


@pytest.mark.parametrize("api", ["openai", "sglang", "llamacpp"])
def test_token_ids_where_they_can_be_sent(api: str) -> None:
    assert plan(IDS, api=api).total == 1


def test_a_plan_survives_being_written_down() -> None:
    p = plan(
        TALK, send_at_s=(0.0, 0.5), think_s=(1.0,), extra={"a": [1, None, "ü"], "b": {"c": "{tag}"}}, stream=False
    )
    assert msgspec.json.decode(msgspec.json.encode(p), type=LoadPlan) == p


def test_the_first_reason_to_stop_counts() -> None:
    async def main() -> tuple[str, str | None]:
        stop = Stop()
        stop.request("first")
        stop.request("second")
        return await stop.requested(), stop.because

    assert asyncio.run(main()) == ("first", "first")
