"""Whatever the server does and whenever it ends: every planned request is in the records, or told with a reason."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmark.load.plan import LoadPlan, Stop
from draftmark.model import Message, Prompt, Workload

from .driving import carry_out
from .scripted import Request, Wire, answer, delta, failing, serving

DEEDS = ("answer", "answer", "answer", "slow", "refuse", "reset", "close", "silent", "vanish")


async def play(deed: str, wire: Wire, request: Request) -> None:
    if deed == "answer":
        await answer(("a", "b"))(wire, request)
    elif deed == "slow":
        await answer(("a", "b"), gap_s=0.02)(wire, request)
    elif deed == "refuse":
        await failing("503 Busy", b"{}")(wire, request)
    elif deed == "vanish":
        wire.reset()
    else:
        wire.stream()
        await wire.event(delta("a"))
        if deed == "silent":
            await wire.until_left()
        else:
            wire.reset() if deed == "reset" else wire.close()


@st.composite
def plans(draw: st.DrawFn) -> LoadPlan:
    turns = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
    workload = Workload(
        "w", tuple(Prompt(f"p{i}", (Message("user", "x"),), 8, follow_ups=("y",) * n) for i, n in enumerate(turns))
    )
    gaps = draw(st.lists(st.sampled_from([0.0, 0.01, 0.03]), min_size=1, max_size=12))
    opened = draw(st.booleans())
    times: dict[str, Any] = (
        {"send_at_s": tuple(sum(gaps[:i]) for i in range(len(gaps)))} if opened else {"repeat": 3}
    )
    return LoadPlan(
        workload=workload,
        concurrency=draw(st.integers(0 if opened else 1, 3)),
        warmup=draw(st.sampled_from([None, 0, 2])),
        think_s=draw(st.sampled_from([(), (0.0, 0.02)])),
        max_seconds=draw(st.sampled_from([None, 0.05, 0.15])),
        max_errors=draw(st.sampled_from([None, 2])),
        request_timeout_s=0.25,
        stream=True,
        model="m",
        **times,
    )


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=plans(),
    deeds=st.lists(st.sampled_from(DEEDS), min_size=1, max_size=8),
    stop_after=st.none() | st.integers(1, 6),
)
def test_records_and_unsent_make_up_the_plan(plan: LoadPlan, deeds: list[str], stop_after: int | None) -> None:
    served = 0

    async def script(wire: Wire, request: Request) -> None:
        nonlocal served
        served += 1
        await play(deeds[served % len(deeds)], wire, request)

    stop = Stop()
    seen = []

    def on_record(record: object) -> None:
        seen.append(record)
        if len(seen) == stop_after:
            stop.request("stopped")

    with serving(script) as server:
        run = carry_out(server.url, plan, stop=stop, on_record=on_record)  # which looks at the sums
    assert tuple(seen) == run.records
    if run.stopped_because is None:
        assert run.unsent.keys() <= {"an earlier turn of the conversation failed"}
    for record in run.records:
        assert record.end_at_s >= record.sent_at_s
        assert (record.intended_at_s is not None) == plan.open
        if record.intended_at_s is not None:
            assert record.sent_at_s >= record.intended_at_s
