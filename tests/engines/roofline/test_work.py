"""Bytes and operations of a round: added up by hand, and what must hold for every model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.roofline.shapes import NAMES, captured, published

from draftmark.engines.model_config import ModelShape
from draftmark.engines.roofline import Roofline, Served, card_of, distinct_experts, sentences
from draftmark.engines.roofline.stack import target_stack
from draftmark.errors import BadInputError


def known(name: str) -> Any:
    card = card_of(name)
    assert card is not None
    return card


H200 = known("h200")
KNOWN = [name for name in NAMES if not published(name).quantization.unknown]


def roofline(shape: ModelShape, **more: Any) -> Roofline:
    draft = more.pop("draft", "own-layers" if shape.mtp_layers else "none")
    return Roofline(Served(**{"shape": shape, "card": H200, "draft": draft, **more}))


def bytes_of(line: Roofline, part: str, concurrency: int, depth: int, context: float) -> float:
    return sum(each.bytes for each in line.round(concurrency, depth, context).verify if each.name == part)


@pytest.mark.parametrize("name", KNOWN)
def test_all_weights_are_there_once(name: str) -> None:
    """Those of a pass are the bill's, but for the embedding, towers and layers that only draft."""
    shape = published(name)
    bill = shape.weights()
    left_out = bill.of("vision", "mtp", "mtp_copies").bytes + (0 if shape.tied else bill.of("embedding").bytes)
    counted = sum(each.bytes for each in target_stack(Served(shape=shape, card=H200)).gemms)
    assert counted == pytest.approx(bill.bytes - left_out, rel=1e-9)


def test_a_dense_model_by_hand() -> None:
    """Llama 3.1 8B, three requests, two drafts each, 1000 tokens behind them, in 16 bits."""
    line = roofline(published("llama-3.1-8b"))
    found = line.round(3, 2, 1000)
    weights = {
        "attention projections": 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096),
        "dense MLPs": 32 * 3 * 4096 * 14336,
        "head": 128256 * 4096,
    }
    for part, parameters in weights.items():
        (work,) = [each for each in found.verify if each.name == part]
        assert (work.bytes, work.ops) == (2 * parameters, 2 * parameters * 9)
    (kv,) = [each for each in found.verify if each.name == "KV cache and scores"]
    assert kv.bytes == 32 * (3 * 1000 + 9) * 8 * (128 + 128) * 2
    assert kv.ops == 32 * 9 * 1000 * 32 * (128 + 128) * 2
    (embedding,) = [each for each in found.verify if each.name == "embedding"]
    assert embedding.bytes == 9 * 4096 * 2
    assert found.draft == ()


def test_a_hybrid_mixture_by_hand() -> None:
    """The captured model: state read and written once a request, experts by how many are hit."""
    line = roofline(captured())
    state = 30 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    assert bytes_of(line, "recurrent state", 5, 3, 100) == 2 * 5 * state
    hit = 256 * (1 - (1 - 8 / 256) ** 20)
    assert bytes_of(line, "experts", 5, 3, 100) == pytest.approx(40 * hit * 3 * 2048 * 512 * 2)
    experts = [each for each in line.round(5, 3, 100).verify if each.name == "experts"]
    assert sum(each.ops for each in experts) == pytest.approx(2 * 20 * 40 * 8 * 3 * 2048 * 512)


def test_draft_passes_are_the_layer_and_the_head_each_time() -> None:
    line = roofline(captured())
    one, four = (sum(each.bytes for each in line.round(1, depth, 0).draft) for depth in (1, 4))
    bill = captured().weights()
    own = bill.of("mtp").bytes - 256 * 3 * 2048 * 512 * 2 + 8 * 3 * 2048 * 512 * 2
    kv, embedding = 2 * 2 * 256 * 2, 2048 * 2
    assert one == pytest.approx(own + bill.of("lm_head").bytes + kv + embedding)
    assert four == pytest.approx(4 * one)


def test_a_draft_model_of_its_own_and_none_at_all() -> None:
    target, small = published("qwen3-8b"), published("qwen3-0.6b")
    line = roofline(target, draft="model", draft_shape=small)
    alone = roofline(small, draft="none")
    drafted = sum(each.bytes for each in line.round(2, 3, 500).draft)
    assert drafted == pytest.approx(3 * alone.round(2, 0, 500).bytes)
    assert roofline(target, draft="none").round(2, 3, 500).draft == ()


def test_four_cards_share_weights_heads_and_states() -> None:
    """All but the few matrices that every card has whole: 4 cards, 2 heads of keys and values."""
    one, four = (roofline(captured(), tensor_parallel=ranks) for ranks in (1, 4))
    for part, share in (("experts", 4), ("head", 4), ("recurrent state", 4), ("KV cache and scores", 2)):
        whole = bytes_of(one, part, 8, 2, 700)
        assert bytes_of(four, part, 8, 2, 700) == pytest.approx(whole / share), part


def test_narrow_types_move_less_and_compute_faster() -> None:
    wide, narrow = (roofline(published(name)) for name in ("qwen3-30b-a3b", "qwen3-30b-a3b-fp8"))
    assert bytes_of(narrow, "experts", 4, 0, 0) == pytest.approx(bytes_of(wide, "experts", 4, 0, 0) / 2, rel=0.01)
    precisions = {each.precision for each in narrow.round(1, 0, 0).verify if each.name == "experts"}
    assert precisions == {"fp8"}
    half = roofline(published("llama-3.1-8b"), kv_bytes=1.0)
    full = roofline(published("llama-3.1-8b"))
    assert 2 * bytes_of(half, "KV cache and scores", 4, 0, 900) == bytes_of(full, "KV cache and scores", 4, 0, 900)


def test_packed_integers_are_computed_wide() -> None:
    """AWQ: four bits are moved, sixteen multiplied."""
    works = roofline(published("qwen2.5-7b-awq")).round(1, 0, 0).verify
    assert {each.precision for each in works if each.name == "dense MLPs"} == {"half"}


def test_windows_bound_what_is_read() -> None:
    line = roofline(published("gpt-oss-20b"))
    short, long = (bytes_of(line, "KV cache and scores", 1, 0, context) for context in (128, 128_000))
    assert long < 600 * short  # half of its layers never look back further than 128 tokens
    sparse = roofline(published("deepseek-v3.2"), draft="none")
    near, far = (sparse.round(1, 0, context).verify for context in (2048, 128_000))
    ops = [sum(each.ops for each in works if each.name == "KV cache and scores") for works in (near, far)]
    assert ops[0] == ops[1]


def test_weights_that_cannot_be_told_are_refused() -> None:
    unknown = [name for name in NAMES if published(name).quantization.unknown]
    for name in unknown:
        with pytest.raises(BadInputError):
            roofline(published(name))


@given(st.integers(1, 512), st.data(), st.floats(1, 1e5))
def test_experts_hit_lie_between_those_of_one_token_and_all(experts: int, data: Any, tokens: float) -> None:
    met = data.draw(st.integers(1, experts))
    hit = distinct_experts(experts, met, tokens)
    assert met - 1e-6 <= hit <= experts + 1e-6
    assert hit <= met * tokens + 1e-6
    assert distinct_experts(experts, met, 2 * tokens) >= hit - 1e-9
    assert distinct_experts(experts, met, 1) == pytest.approx(met)


@given(
    st.sampled_from(KNOWN),
    st.integers(1, 256),
    st.integers(0, 12),
    st.integers(0, 100_000),
    st.sampled_from([1, 2, 8]),
)
def test_more_work_never_takes_less(name: str, concurrency: int, depth: int, context: int, ranks: int) -> None:
    line = roofline(published(name), tensor_parallel=ranks)
    here = line.round(concurrency, depth, context)
    for more in (
        line.round(concurrency + 1, depth, context),
        line.round(concurrency, depth + 1, context),
    ):
        assert more.bytes > here.bytes
        assert more.ops > here.ops
        assert more.floor_s > here.floor_s
    longer = line.round(concurrency, depth, context + 1000)
    assert (longer.bytes >= here.bytes, longer.floor_s >= here.floor_s) == (True, True)


@given(st.sampled_from(KNOWN), st.integers(1, 64), st.integers(1, 10))
def test_parts_add_up_and_gains_are_bounded(name: str, concurrency: int, depth: int) -> None:
    line = roofline(published(name))
    whole = line.round(concurrency, depth, 500)
    shares = whole.shares()
    assert sum(each.floor_s for each in shares) == pytest.approx(whole.floor_s)
    assert sum(each.bytes for each in shares) == pytest.approx(whole.bytes)
    gain = line.gain_at_floor(concurrency, depth, 500)
    assert 0 < gain <= depth + 1
    off = line.round(concurrency, 0, 500).floor_s
    assert line.gain_ceiling(concurrency, depth, 500, 1.5 * off) >= gain
    assert line.gain_ceiling(concurrency, depth, 500, 1000.0) == depth + 1
    assert line.gain_at_floor(concurrency, depth, 500, 1.0) <= 1


@given(st.sampled_from(KNOWN), st.integers(0, 8), st.sampled_from(["experts", "dense MLPs", "head"]))
def test_where_a_part_turns_compute_bound(name: str, depth: int, part: str) -> None:
    line = roofline(published(name), draft="none")
    since = line.compute_bound_from(part, depth, 100)
    if since is None:
        assert part not in {each.name for each in line.round(1, 0, 100).verify}
        return
    bounds = {
        concurrency: {each.name: each.bound for each in line.round(concurrency, depth, 100).shares()}[part]
        for concurrency in {since, max(1, since - 1)}
    }
    assert bounds[since] == "compute"
    assert since == 1 or bounds[since - 1] == "memory"


def test_the_machine_balance_is_where_dense_weights_turn() -> None:
    """2 operations and 2 bytes a weight: as many tokens as the card computes operations a byte."""
    line = roofline(published("llama-3.1-8b"))
    assert line.compute_bound_from("dense MLPs", 0, 0) == -(-989.5e12 // 4.8e12)
    assert line.compute_bound_from("dense MLPs", 4, 0) == 42


def test_experts_are_split_or_spread_and_weigh_the_same_on_average() -> None:
    split, spread = (roofline(captured(), tensor_parallel=4, expert_parallel=groups) for groups in (1, 4))
    assert bytes_of(split, "experts", 3, 1, 0) == bytes_of(spread, "experts", 3, 1, 0)
    assert "expert width 128 (512 over 4 cards)" in sentences(split, 1, (1,), 0)[0]
    assert "expert width 512:" in sentences(spread, 1, (1,), 0)[0]
