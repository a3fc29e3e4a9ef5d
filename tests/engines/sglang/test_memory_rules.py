"""Cells, fractions, weights and releases: each rule by itself."""

from __future__ import annotations

import dataclasses

import pytest

from draftmark.engines.sglang.memory import cards, cell, fraction, weights
from draftmark.engines.sglang.memory.anatomy import Anatomy, Draft, Heads, Latent, Tensors
from draftmark.engines.sglang.memory.rules import choose, releases
from draftmark.engines.sglang.memory.settings import Settings, settings_of
from draftmark.errors import UsageError

TEXT = Anatomy(
    architecture="LlamaForCausalLM",
    context=131_072,
    layers=32,
    full=Heads(layers=32, kv_heads=8, key=128, value=128),
    weights=Tensors(bytes=16 << 30),
)
LATENT = Anatomy(
    architecture="DeepseekV3ForCausalLM",
    context=163_840,
    layers=61,
    latent=Latent(layers=61, rank=512, rope=64),
    weights=Tensors(bytes=640 << 30),
    nextn=1,
)
EAGLE = Settings(algorithm="EAGLE", steps=3, draft_tokens=4)
WITH_PATH = dataclasses.replace(EAGLE, draft_path="/draft")
# A wrapped model of 64 layers, 16 of them with full attention, and its one layer to draft with.
WRAPPED = Anatomy(
    architecture="Qwen3_5ForConditionalGeneration",
    context=262_144,
    layers=64,
    full=Heads(layers=16, kv_heads=4, key=256, value=256),
    weights=Tensors(bytes=50 << 30),
    wrapped=True,
)
OWN = Draft(weights=None, nextn=None, layers=64, architecture="Qwen3_5ForConditionalGeneration", wrapped=True)


def bytes_of(version: str, settings: Settings, model: Anatomy, draft: Draft | None = None) -> float:
    return cell.cell_of(choose(version).rules, settings, model, draft).bytes


def test_grouped_heads_are_divided_among_ranks_down_to_one() -> None:
    assert bytes_of("0.5.14", Settings(), TEXT) == 32 * 8 * 256 * 2
    assert bytes_of("0.5.14", Settings(tp=4), TEXT) == 32 * 2 * 256 * 2
    assert bytes_of("0.5.14", Settings(tp=16), TEXT) == 32 * 1 * 256 * 2
    assert bytes_of("0.5.14", Settings(kv_dtype="fp8_e4m3"), TEXT) == 32 * 8 * 256
    assert bytes_of("0.5.14", Settings(tp=4, dp=4, dp_attention=True), TEXT) == 32 * 8 * 256 * 2


def test_latent_attention_is_not_divided_and_an_indexer_adds_its_key() -> None:
    assert bytes_of("0.5.14", Settings(tp=8), LATENT) == 576 * 61 * 2
    sparse = dataclasses.replace(LATENT, latent=Latent(layers=61, rank=512, rope=64, index_head=128))
    assert bytes_of("0.5.14", Settings(), sparse) == 576 * 61 * 2 + (128 + 4) * 61
    fp8 = Settings(kv_dtype="fp8_e4m3")
    assert bytes_of("0.5.14", fp8, sparse) == 576 * 61 + 132 * 61
    assert bytes_of("0.5.23", fp8, sparse) == (512 + 16 + 128) * 61 + 132 * 61


def test_the_drafts_layers_by_version_and_path() -> None:
    """Uncounted at first, then with a path, then from the target's own count."""
    one = Draft(weights=None, nextn=None, layers=1, architecture="LlamaForCausalLMEagle3")
    plain = bytes_of("0.5.14", Settings(), TEXT)
    assert bytes_of("0.5.12", WITH_PATH, TEXT, one) == plain
    assert bytes_of("0.5.14", WITH_PATH, TEXT, one) == plain * 33 / 32
    assert bytes_of("0.5.14", EAGLE, TEXT, one) == plain
    assert bytes_of("0.5.14", Settings(algorithm="NGRAM", draft_tokens=12), TEXT) == plain
    counted = dataclasses.replace(TEXT, nextn=1)
    assert bytes_of("0.5.17", EAGLE, counted) == plain
    assert bytes_of("0.5.20", EAGLE, counted) == plain * 33 / 32


def test_deepseek_drafts_from_its_own_path_without_being_told() -> None:
    own = Draft(weights=None, nextn=1, layers=61, architecture="DeepseekV3ForCausalLM")
    assert bytes_of("0.5.14", EAGLE, LATENT, own) == 576 * 61 * 2 + 576 * 2


@pytest.mark.parametrize(("version", "times"), [("0.5.12", 1), ("0.5.14", 5), ("0.5.17", 5), ("0.5.20", 17 / 16)])
def test_a_wrapped_model_with_a_path_is_charged_five_times_until_it_is_not(version: str, times: float) -> None:
    plain = bytes_of(version, Settings(), WRAPPED)
    assert bytes_of(version, WITH_PATH, WRAPPED, OWN) == plain * times
    assert bytes_of(version, EAGLE, WRAPPED, OWN) == plain


def test_what_no_budget_counts_is_kept_in_mind() -> None:
    found = cell.cell_of(choose("0.5.17").rules, EAGLE, WRAPPED, dataclasses.replace(OWN, cell=4096))
    assert found.uncounted_draft == 4096
    assert cell.cell_of(choose("0.5.17").rules, Settings(), WRAPPED, None).uncounted_draft == 0


def test_sliding_windows_are_a_share_of_the_full_pool() -> None:
    model = dataclasses.replace(
        TEXT,
        architecture="GptOssForCausalLM",
        full=Heads(layers=12, kv_heads=8, key=64, value=64),
        window=Heads(layers=12, kv_heads=8, key=64, value=64),
        window_tokens=128,
    )
    layer = 8 * 128 * 2
    assert bytes_of("0.5.14", Settings(), model) == 12 * layer + 0.8 * 12 * layer
    one = Draft(weights=None, nextn=None, layers=1, architecture="")
    assert bytes_of("0.5.14", WITH_PATH, model, one) == 12 * layer + 0.8 * 12 * layer
    assert bytes_of("0.5.17", WITH_PATH, model, one) == 13 * layer + 0.8 * 12 * layer
    capped = dataclasses.replace(WITH_PATH, radix=False, running=16, chunked_prefill=8192)
    found = cell.cell_of(choose("0.5.14").rules, capped, model, one)
    assert found.bytes == 12 * layer
    assert found.fixed == ((128 + 128 * 4 + 1 + 2 * 4) * 16 + 2 * 8192 + 1) * 12 * layer


def test_the_default_fraction_by_version() -> None:
    """80 GiB, nothing set; a draft's flat reserve went with 0.5.14, and small cards changed with 0.5.20."""

    def of(version: str, settings: Settings = Settings(), mib: int = 81_559, model: Anatomy = TEXT) -> float:  # noqa: B008
        return fraction.defaults(choose(version).rules, settings, model, mib).fraction

    reserve = 512 + 1.5 * 8192 + 2 * 256 + 128 + 8 * 58
    assert of("0.5.14") == round((81_559 - reserve) / 81_559, 3) == 0.83
    assert of("0.5.12", EAGLE) == round((81_559 - reserve - 4096) / 81_559, 3)
    assert of("0.5.12", dataclasses.replace(EAGLE, algorithm="STANDALONE")) == round(
        (81_559 - reserve - 6144) / 81_559, 3
    )
    assert of("0.5.12", Settings(algorithm="NGRAM", draft_tokens=4)) == of("0.5.12") == of("0.5.14", EAGLE)
    assert of("0.5.14", mib=24_564) > of("0.5.20", mib=24_564)
    assert of("0.5.23", Settings(running=16)) > of("0.5.20", Settings(running=16))
    assert of("0.5.14", model=LATENT) == round((81_559 - (reserve - 8 * 58 + 1536)) / 81_559, 3)
    seen = dataclasses.replace(TEXT, multimodal=True, vision=(24, 1024))
    assert of("0.5.14", model=seen) == pytest.approx(0.83 * 0.95)


def test_how_many_prefill_sizes_are_captured() -> None:
    assert fraction.prefill_graphs(8192) == 58
    assert fraction.prefill_graphs(2048) == 42
    assert fraction.prefill_graphs(3) == 0


def test_large_tensors_have_blocks_of_their_own_and_small_ones_share() -> None:
    mib = 1 << 20
    assert weights.placed_bytes([11 * mib + 1, 1 * mib])[0] == 12 * mib
    assert weights.placed_bytes([11 * mib + 1, 1 * mib], first=True)[0] == 32 * mib
    assert weights.placed_bytes([])[0] == 0


@pytest.mark.parametrize(
    ("text", "mib"),
    [("h200", 143_771), ("NVIDIA H200", 143_771), ("NVIDIA H100 80GB HBM3", 81_559), ("80GiB", 81_920),
     ("143771MiB", 143_771), ("81559", 81_559), ("NVIDIA A100-SXM4-40GB", 40_960)],
)  # fmt: skip
def test_cards_by_name_and_size(text: str, mib: int) -> None:
    assert cards.gpu_of(text).total_mib == mib


@pytest.mark.parametrize("text", ["", "h9000", "-80GiB", "3", "1e9", "80 apples", "\u0668GiB"])
def test_what_is_no_card_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        cards.gpu_of(text)


def test_versions_in_between_newer_and_unknown_are_said() -> None:
    assert choose("0.5.17").assumption is None
    assert choose("v0.5.17.post2").rules.version == "0.5.17"
    between = choose("0.5.13")
    assert (between.rules.version, [each.version for each in between.others]) == ("0.5.12", ["0.5.14"])
    assert "0.5.13 was not read" in str(between.assumption)
    newer = choose("0.6.1")
    assert newer.rules == releases()[-1]
    assert "newer" in str(newer.assumption)
    assert len(choose(None).others) == len(releases()) - 1
    assert "no version number" in str(choose("main").assumption)


def test_shapes_are_resolved_as_sglang_does() -> None:
    def shape(architecture: str | None = None, **values: object) -> tuple[str | None, int, int, int]:
        found = settings_of({f"speculative_{k}": v for k, v in values.items()}, architecture)
        return found.algorithm, found.steps, found.topk, found.draft_tokens

    assert shape() == (None, 0, 1, 0)
    assert shape(algorithm="NEXTN") == ("EAGLE", 3, 1, 4)
    assert shape("LlamaForCausalLM", algorithm="EAGLE") == ("EAGLE", 5, 4, 8)
    assert shape("LlamaForCausalLM", algorithm="STANDALONE") == ("STANDALONE", 3, 1, 4)
    assert shape(algorithm="EAGLE", num_steps="1", eagle_topk="1", num_draft_tokens="9") == ("EAGLE", 1, 1, 2)
    assert shape(algorithm="ngram") == ("NGRAM", 1, 10, 12)
    assert (
        settings_of({"speculative_algorithm": "EAGLE", "speculative_num_steps": 1, "tp_size": 1}).requested() == 48
    )
    asked = {"speculative_algorithm": "EAGLE", "max_running_requests": "96", "dp_size": 2}
    assert settings_of(asked).requested() == 96  # two replicas, each with all of it
    assert settings_of({**asked, "enable_dp_attention": True}).requested() == 48
    with pytest.raises(ValueError, match="--tp-size 'two'"):
        settings_of({"tp_size": "two"})
