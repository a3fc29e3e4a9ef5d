"""Bad input to `fit`, case by case: each says what it assumed or refuses; none is a sure wrong number."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.main import main

HERE = Path(__file__).parents[1] / "data"
CAPTURE = (HERE / "sglang" / "captured-0.5.17-k3.log").read_bytes()
HYBRID = json.loads((HERE / "sglang" / "h200" / "model" / "config.json").read_text())
PLAIN = "--mem-fraction-static 0.8"
GPU = ("--gpu", "h100", "--engine-version", "0.5.17", "--depth", "0", "--flags", PLAIN)


def published(name: str) -> dict[str, Any]:
    config = json.loads((HERE / "model_config" / f"{name}.json").read_text())["config"]
    assert isinstance(config, dict)
    return config


DENSE = published("qwen3-8b")


@dataclass(frozen=True, slots=True)
class Said:
    status: int
    out: dict[str, Any]
    err: str

    @property
    def assumptions(self) -> str:
        return "\n".join(self.out.get("assumptions", ()))

    def width(self) -> float:
        """Of the first arm's tokens, as a share of them."""
        arm = self.out["arms"][0]
        return float((arm["high"]["kv_tokens"] - arm["low"]["kv_tokens"]) / arm["kv_tokens"])


Fit = Callable[..., Said]


@pytest.fixture
def fit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Fit]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(config: object, *words: str, log: bytes | None = None) -> Said:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        text = config if isinstance(config, bytes) else json.dumps(config).encode()
        (folder / "config.json").write_bytes(text)
        if log is not None:
            (tmp_path / "boot.log").write_bytes(log)
            words = (*words, "--log", str(tmp_path / "boot.log"))
        status = main(["fit", str(folder), *words, "--json"])
        out, err = capfd.readouterr()
        assert "draftmark itself failed" not in err
        return Said(status, json.loads(out) if out else {}, err)

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


REFUSED: dict[str, tuple[object, tuple[str, ...], str]] = {
    "unknown architecture": ({**DENSE, "architectures": ["Qwen9ForCausalLM"], "model_type": "qwen9"}, GPU, "Qwen9"),
    "KV of its own kind": ({**DENSE, "architectures": ["DeepseekV4ForCausalLM"]}, GPU, "DeepseekV4"),
    "no layers": (without(DENSE, "num_hidden_layers"), GPU, "num_hidden_layers"),
    "no heads": (without(DENSE, "num_attention_heads"), GPU, "num_attention_heads"),
    "no width": (without(DENSE, "hidden_size"), GPU, "hidden_size"),
    "a field that is no number": ({**DENSE, "num_hidden_layers": "many"}, GPU, "num_hidden_layers"),
    "unknown quantization": ({**DENSE, "quantization_config": {"quant_method": "zip"}}, GPU, "zip"),
    "no JSON": (b"{", GPU, "no JSON"),
    "an empty config": (b"", GPU, "no JSON"),
    "a list": ([1, 2], GPU, "no JSON object"),
    "binary": (b"\x00\xff\x01", GPU, "no JSON"),
    "no card": (DENSE, ("--depth", "0", "--gpu", "h9000"), "neither a known card"),
    "no draft to be had": (DENSE, (*GPU[:4], "--depth", "2", "--flags", PLAIN), "no speculative algorithm"),
    "a flag that is none": (DENSE, (*GPU[:-1], f"{PLAIN} --page-sise 16"), "--page-sise"),
    "a number that is none": (DENSE, (*GPU[:-1], "--mem-fraction-static lots"), "not a number"),
    "a fraction of nothing": (DENSE, (*GPU[:-1], "--mem-fraction-static 0"), "not a number above 0"),
    "more than all memory": (DENSE, (*GPU[:-1], "--mem-fraction-static 1.5"), "no share of the memory"),
    "no page": (DENSE, (*GPU[:-1], f"{PLAIN} --page-size -64"), "not a number above 0"),
    "no rank": (DENSE, (*GPU[:-1], f"{PLAIN} --tp-size 0"), "not a number above 0"),
    "fewer than no ranks": (DENSE, (*GPU[:-1], f"{PLAIN} --tp -2"), "not a number above 0"),
    "a KV type that there is none of": (DENSE, (*GPU[:-1], f"{PLAIN} --kv-cache-dtype int7"), "no such choice"),
    "a state type that there is none of": (DENSE, (*GPU[:-1], f"{PLAIN} --mamba-ssm-dtype int4"), "no such choice"),
    "a strategy that there is none of": (
        DENSE, (*GPU[:-1], f"{PLAIN} --mamba-radix-cache-strategy blah"), "no such choice"
    ),
    "an algorithm that there is none of": (
        HYBRID, (*GPU[:4], "--depth", "3", "--flags", f"{PLAIN} --speculative-algorithm FOO"), '"FOO" has no depth'
    ),
    "overrides that are none": (DENSE, (*GPU[:-1], f"{PLAIN} --json-model-override-args ["), "no JSON object"),
    "a standalone draft without config": (
        DENSE,
        (*GPU[:4], "--depth", "3", "--flags", f"{PLAIN} --speculative-algorithm STANDALONE "
         "--speculative-draft-model-path /nowhere"),
        "no config.json of /nowhere",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_reason(fit: Fit, case: str) -> None:
    config, words, why = REFUSED[case]
    said = fit(config, *words)
    assert (said.status, said.out) == (2, {})
    assert why in said.err
    assert "next:" in said.err


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("qwen3-30b-a3b-fp8", "fp8"),
        ("qwen2.5-7b-awq", "awq"),
        ("gpt-oss-20b", "mxfp4"),
        ("llama-3.2-1b-bnb-4bit", "bitsandbytes"),
    ],
)
def test_quantized_weights_are_an_estimate_with_bounds(fit: Fit, name: str, method: str) -> None:
    said = fit(published(name), *GPU)
    assert said.status == 0, said.err
    assert f"quantized by {method}: their size is an estimate" in said.assumptions
    assert said.width() > 0.002


def test_gptq_too(fit: Fit) -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    four, whole = fit({**DENSE, "quantization_config": gptq}, *GPU), fit(DENSE, *GPU)
    assert "quantized by gptq" in four.assumptions
    assert four.out["arms"][0]["kv_tokens"] > whole.out["arms"][0]["kv_tokens"]


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--quantization fp8", "what is left of the weights is a guess"),
        ("--tp-size 4", "communication takes was not measured"),
        ("--tp-size 4 --dp-size 4 --enable-dp-attention", "how it divides weights is an estimate"),
    ],
)
def test_flags_whose_memory_is_not_sure_are_said_and_widen_the_bounds(fit: Fit, flag: str, said: str) -> None:
    known, unsure = fit(DENSE, *GPU), fit(DENSE, *GPU[:-1], f"{PLAIN} {flag}")
    assert unsure.status == 0, unsure.err
    assert said in unsure.assumptions
    if "kv-cache" not in flag:
        assert unsure.width() > known.width()


@pytest.mark.parametrize(
    "flag",
    ["--torchao-config int4wo-128", "--cpu-offload-gb 10", "--pp-size 2", "--enable-lora", "--config a.yaml"],
)
def test_flags_that_are_not_modelled_have_no_figure_rather_than_a_made_up_one(fit: Fit, flag: str) -> None:
    said = fit(DENSE, *GPU[:-1], f"{PLAIN} {flag}")
    assert said.status == 0, said.err
    arm = said.out["arms"][0]
    assert arm["fits"] is None
    assert arm["kv_tokens"] is arm["low"]["kv_tokens"] is arm["high"]["kv_tokens"] is None
    assert arm["because"] == [f"{flag} is not modelled: no figure is given"]


def test_float32_and_overrides_are_reckoned_with(fit: Fit) -> None:
    plain = fit(DENSE, *GPU).out["arms"][0]["kv_tokens"]
    double = fit(DENSE, *GPU[:-1], f"{PLAIN} --dtype float32").out["arms"][0]["kv_tokens"]
    assert double < plain / 2
    override = """--json-model-override-args '{"num_hidden_layers": 18}'"""
    half = fit(DENSE, *GPU[:-1], f"{PLAIN} {override}").out["arms"][0]["kv_tokens"]
    assert half > 2 * plain


def test_a_draft_path_without_config_is_assumed(fit: Fit) -> None:
    flags = f"{PLAIN} --speculative-algorithm EAGLE3 --speculative-draft-model-path /nowhere"
    said = fit(DENSE, *GPU[:4], "--depth", "3", "--flags", flags)
    assert said.status == 0
    assert "the draft's config cannot be used" in said.assumptions
    assert said.width() > 0.01


@pytest.mark.parametrize("version", ["0.5.40", "0.6.0", "1.0.0", "0.5.19", "0.4.6", "main"])
def test_another_version_than_those_read_is_said(fit: Fit, version: str) -> None:
    words = ("--gpu", "h200", "--engine-version", version, "--depth", "3", "--method", "NEXTN", "--flags", PLAIN)
    said = fit(HYBRID, *words)
    assert said.status == 0, said.err
    assert "assumed" in said.assumptions


def newer(log: bytes) -> bytes:
    """As a later release may print it: other arguments, lines in other words."""
    return (
        log.replace(b"enable_double_sparsity=False, ", b"")
        .replace(b"model_path=", b"warp_factor=9, speculative_use_block_verification=False, model_path=")
        .replace(b"Mamba Cache is allocated.", b"State pool ready.")
        .replace(b"KV Cache is allocated.", b"KV pool ready.")
    )


def test_a_log_of_a_newer_version(fit: Fit) -> None:
    said = fit(HYBRID, "--engine-version", "0.6.0", "--depth", "1,3", log=newer(CAPTURE))
    assert said.status == 0, said.err
    assert "newer" in said.assumptions
    arm = said.out["arms"][1]
    assert arm["low"]["kv_tokens"] <= 338_982 <= arm["high"]["kv_tokens"]
    assert arm["high"]["kv_tokens"] - arm["low"]["kv_tokens"] > 100


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"\n" * 1000,
        bytes(range(256)) * 400,
        b"\x1f\x8b\x08\x00not really",
        b"LPKSHHRH" + b"\0" * 900,
        CAPTURE[:1500],
    ],
    ids=["empty", "blank", "binary", "broken gzip", "a journal file", "cut in the arguments"],
)
def test_a_log_that_tells_nothing_is_not_used(fit: Fit, log: bytes) -> None:
    alone = fit(DENSE, "--depth", "0", log=log)
    assert (alone.status, alone.out) == (2, {})
    said = fit(DENSE, *GPU, log=log)
    assert said.status == 0, said.err
    assert said.out["calibrated_from"] is None
    assert "does not tell the memory" in said.assumptions


def test_a_log_of_another_model_is_not_used(fit: Fit) -> None:
    alone = fit(DENSE, "--depth", "0", log=CAPTURE)
    assert alone.status == 2
    assert "the log is of another model: it loaded 63.11 GiB" in alone.err
    said = fit(DENSE, *GPU, log=CAPTURE)
    assert said.out["calibrated_from"] is None
    assert "another model" in said.assumptions
    assert said.out["arms"] == fit(DENSE, *GPU).out["arms"]


def test_arguments_that_are_cut_off_are_not_made_up(fit: Fit) -> None:
    """Whether the radix cache is on decides what fits: without its flag depth 10 would."""
    line = next(line for line in CAPTURE.split(b"\n") if b"server_args=" in line)
    short = CAPTURE.replace(line, line[: line.index(b"disable_radix_cache")])
    said = fit(HYBRID, "--depth", "3,10", log=short)
    assert said.status == 2
    assert "cut off" in said.err
    assert "--disable-radix-cache" in said.err
    longer = CAPTURE.replace(line, line[: line.index(b"mamba_radix_cache_strategy")])
    enough = fit(HYBRID, "--depth", "3,10", log=longer)
    assert [arm["fits"] for arm in enough.out["arms"]] == [True, False]
    assert "cut off" in enough.assumptions


def test_an_unknown_architecture_is_no_dead_end(fit: Fit) -> None:
    """What the log had is shown; a copy of the config that names the kind first is fitted, and by that log."""
    renamed = CAPTURE.replace(b"type=Qwen3_5MoeForCausalLM", b"type=FooForCausalLM")
    unknown = {**HYBRID, "architectures": ["FooForCausalLM"], "model_type": "foo"}
    said = fit(unknown, "--depth", "3", log=renamed)
    assert said.status == 2
    assert "Qwen3_5MoeForCausalLM" in said.err
    assert "the start in the log had 338,982 tokens, 48 requests at once" in said.err
    assert "put that one first in `architectures`" in said.err
    both = fit(
        {**HYBRID, "architectures": ["Qwen3_5MoeForCausalLM", "FooForCausalLM"]}, "--depth", "3", log=renamed
    )
    assert both.status == 0, both.err
    assert both.out["arms"][0]["kv_tokens"] == 338_982


def test_a_log_that_contradicts_itself_is_not_used(fit: Fit) -> None:
    """More is free once the draft is loaded than before: lines of two starts, or a damaged one."""
    mixed = CAPTURE.replace(b"avail mem=74.05 GB, mem usage=1.94", b"avail mem=94.05 GB, mem usage=1.94")
    assert mixed != CAPTURE
    said = fit(HYBRID, "--depth", "3", log=mixed)
    assert said.status == 2
    assert "GPU has is not known" in said.err
    by_card = fit(HYBRID, "--depth", "3", "--gpu", "h200", log=mixed)
    assert by_card.out["calibrated_from"] is None
    assert "the log contradicts itself" in by_card.assumptions


def test_a_log_of_a_card_that_this_one_cannot_be_is_said_and_not_used(fit: Fit) -> None:
    """139.11 GiB were free: no H100; a B200 only if others held the rest."""
    said = fit(HYBRID, "--depth", "3", "--gpu", "h100", log=CAPTURE)
    assert said.out["calibrated_from"] is None
    assert "139.11 GiB were free before loading, and h100 has 79.65 GiB" in said.assumptions
    assert said.out["arms"][0]["kv_tokens"] != 338_982
    said = fit(HYBRID, "--depth", "3", "--gpu", "b200", log=CAPTURE)
    assert said.out["arms"][0]["kv_tokens"] == 338_982
    assert "of b200's 179.06 GiB: its figures hold where as much is held by others" in said.assumptions
    own = fit(HYBRID, "--depth", "3", "--gpu", "h200", log=CAPTURE)
    assert "held by others" not in own.assumptions


def test_why_a_log_is_not_used_is_told_where_nothing_else_tells(fit: Fit) -> None:
    said = fit(HYBRID, "--depth", "3", "--tp", "2", log=CAPTURE)
    assert said.status == 2
    assert "with another --tp-size" in said.err
    assert "or a boot log" not in said.err
    backwards = b"".join(reversed(CAPTURE.splitlines(keepends=True)))
    said = fit(HYBRID, "--depth", "3", "--flags", PLAIN, log=backwards)
    assert said.status == 0 or "or a boot log" not in said.err


def test_two_totals_in_one_log_are_told(fit: Fit) -> None:
    said = fit(HYBRID, "--depth", "3", log=CAPTURE.replace(b"#tokens: 338982", b"#tokens: 400000"))
    assert "its pool has 400,000 tokens, and max_total_num_tokens is 338,982" in said.assumptions
    arm = said.out["arms"][0]
    assert arm["low"]["kv_tokens"] < 338_982 < arm["high"]["kv_tokens"]


@pytest.mark.parametrize("name", ["kill_child", "drain", "drain-killed", "no-room-for-kv"])
def test_what_else_took_memory_during_a_load_is_considered(fit: Fit, name: str) -> None:
    """Starts of SmolLM2 itself, while a second server loaded on the same card."""
    log = (HERE / "sglang" / "h200" / f"death-{name}.log").read_bytes()
    said = fit(published("smollm2-135m"), "--depth", "0", log=log)
    if said.status:
        assert "or something else took memory meanwhile" in said.err
        assert "with nothing else starting on its GPU" in said.err


def test_the_last_message_of_a_failed_start_is_not_contradicted(fit: Fit) -> None:
    """2.5 GiB went to another process before the pools: 0.4736 of 131.43 GiB were free, not 64.76."""
    log = (HERE / "sglang" / "h200" / "death-k10.log").read_bytes()
    said = fit(HYBRID, "--depth", "off,3,10", log=log)
    assert "62.25 GiB were free when the pools were sized" in said.assumptions
    assert [arm["fits"] for arm in said.out["arms"]] == [True, None, False]
    told = [line for line in said.out["arms"][2]["to_get_more"] if "SGLang's own message" in line]
    assert told
    assert float(told[0].split("will say ")[1].split(",")[0]) == pytest.approx(0.527, abs=0.0011)
