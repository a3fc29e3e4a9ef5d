"""What a server would refuse within seconds, told before its start; and what would spoil a tuning."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import UsageError
from draftmark.model import Arm

SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "m")
EAGLE = "--speculative-algorithm EAGLE"
TREE = f"{EAGLE} --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"
NGRAM = "--speculative-algorithm NGRAM"
DFLASH = "--speculative-algorithm DFLASH --speculative-draft-model-path d"
ADAPT = ("--speculative-adaptive", "")
THREE = Arm(3)


def refusal(flags: str, version: str = "0.5.17", arm: Arm = THREE) -> str | None:
    found = SGLang(version=version).refuse((*SERVER, *flags.split()), arm)
    return found.because if found else None


@pytest.mark.parametrize(
    ("flags", "version", "part"),
    [
        (f"{TREE} --attention-backend trtllm_mha", "0.5.14", "trtllm_mha backend only supports topk = 1"),
        (f"{TREE} --decode-attention-backend trtllm_mha", "0.5.23", "trtllm_mha backend only supports topk = 1"),
        (
            f"{TREE} --page-size 16 --attention-backend flashmla",
            "0.5.17",
            "> 1 with page_size > 1 is only supported",
        ),
        (f"{NGRAM} --page-size 16 --attention-backend fa3", "0.5.17", "is unstable"),
        (f"{NGRAM} --enable-dp-attention --dp 2", "0.5.17", "ngram speculative decoding does not support dp"),
        ("--speculative-algorithm STANDALONE --enable-dp-attention", "0.5.12", "Currently standalone"),
        (f"{DFLASH} --enable-dp-attention", "0.5.14", "Currently DFLASH"),
        (f"{DFLASH} --pp-size 2", "0.5.20", "Currently DFLASH"),
        ("--speculative-algorithm DFLASH", "0.5.17", "requires setting --speculative-draft-model-path"),
        (f"{EAGLE} --pp-size 2", "0.5.14", "Pipeline parallelism is not compatible"),
        (f"{EAGLE} --lora-paths a b", "0.5.14", "LoRA is only compatible with NGRAM"),
        (f"{EAGLE} --attention-backend flex_attention", "0.5.17", "Flex Attention"),
        (f"{EAGLE} --mamba-radix-cache-strategy extra_buffer_lazy", "0.5.14", "extra_buffer_lazy"),
        (f"{EAGLE} --mamba-track-interval 2", "0.5.17", "below the 4 draft tokens"),
        (
            f"{NGRAM} --disaggregation-mode decode --disaggregation-decode-enable-radix-cache",
            "0.5.23",
            "incompatible with speculative decoding",
        ),
    ],
)
def test_refused(flags: str, version: str, part: str) -> None:
    assert part in (refusal(flags, version) or "")
    assert refusal(flags, version, Arm(0)) is None


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        (f"{TREE} --attention-backend fa3 --page-size 16", "0.5.17"),
        (f"{TREE} --page-size 16", "0.5.17"),  # which backend it takes is not known here
        (f"{EAGLE} --attention-backend trtllm_mha", "0.5.17"),
        (f"{EAGLE} --lora-paths a", "0.5.23"),
        (f"{NGRAM} --lora-paths a", "0.5.14"),
        (f"{EAGLE} --mamba-radix-cache-strategy extra_buffer_lazy", "0.5.23"),
        (f"{DFLASH} --enable-dp-attention --enable-dp-lm-head", "0.5.23"),
        (f"{EAGLE} --pp-size 1 --page-size 1 --enable-dp-attention", "0.5.17"),
    ],
)
def test_not_refused(flags: str, version: str) -> None:
    assert refusal(flags, version) is None


@pytest.mark.parametrize("flags", [NGRAM, DFLASH])
def test_a_block_of_one_drafts_nothing(flags: str) -> None:
    found = SGLang(version="0.5.17").refuse((*SERVER, *flags.split()), Arm(1))
    assert found is not None
    assert found.code == "dead-depth"


def test_an_algorithm_of_a_later_version() -> None:
    with pytest.raises(UsageError, match="does not have"):
        refusal(DFLASH, "0.5.10")


@pytest.mark.parametrize(
    ("flags", "version", "depth", "part"),
    [
        (EAGLE, "0.5.10", 3, "came with SGLang 0.5.12"),
        (NGRAM, "0.5.17", 4, "speculative_algorithm=NGRAM"),
        ("--speculative-algorithm STANDALONE", "0.5.17", 3, "speculative_algorithm=STANDALONE"),
        (f"{EAGLE} --enable-dp-attention", "0.5.17", 3, "attention data parallelism"),
        (f"{EAGLE} --enable-pdmux", "0.5.17", 3, "--enable-pdmux"),
        (EAGLE, "0.5.17", 5, "not in the adaptive config candidate_steps [0, 1, 3, 7]"),
    ],
)
def test_adaptive_refused(flags: str, version: str, depth: int, part: str) -> None:
    assert part in (refusal(flags, version, Arm(depth, (ADAPT,))) or "")


@pytest.mark.parametrize(("version", "depth"), [("0.5.17", 3), ("0.5.23", 5), ("0.5.12", 4)])
def test_adaptive_not_refused(version: str, depth: int) -> None:
    assert refusal(EAGLE, version, Arm(depth, (ADAPT,))) is None


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (f"{EAGLE} --speculative-eagle-topk 4", "AssertionError"),
        (f"{EAGLE} --speculative-num-steps 3", "TypeError"),
        (f"{EAGLE} --speculative-num-steps 3 --speculative-eagle-topk 4", "is missing"),
    ],
)
def test_half_a_shape_is_told_before_the_server_dies_of_it(flags: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        SGLang(version="0.5.17").check((*SERVER, *flags.split()))


def test_a_file_of_flags_that_speculates_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model-path: m\nspeculative_algorithm: EAGLE\n")
    with pytest.raises(UsageError, match="sets speculation"):
        SGLang().check((*SERVER, "--config", str(file)))
    file.write_text("model-path: m\n")
    SGLang().check((*SERVER, "--config", str(file)))
    assert any("file" in hazard["what"] for hazard in SGLang().hazards((*SERVER, "--config", str(file))))


def hazards(flags: str, version: str | None = "0.5.17") -> str:
    found = SGLang(version=version).hazards((*SERVER, *flags.split()))
    assert all(hazard.keys() == {"what", "evidence", "next_step"} and all(hazard.values()) for hazard in found)
    return "\n".join(hazard["what"] + " | " + hazard["evidence"] for hazard in found)


def test_hazards() -> None:
    assert "at most 48" in hazards(EAGLE)
    assert "at most 48" in hazards("")
    assert "at most 48" not in hazards("--max-running-requests 64")
    assert "/metrics is off" in hazards("")
    assert "/metrics is off" not in hazards("--enable-metrics")
    assert "cannot be flushed" in hazards("--api-key a --admin-api-key b")
    assert "gone after 0.5.17" in hazards("--cuda-graph-max-bs 8")
    assert "deprecated" not in hazards("--cuda-graph-max-bs 8", "0.5.12")
    assert "rules of SGLang 0.5.17 are assumed" in hazards("--cuda-graph-max-bs 8", None)
    assert "rules of another" not in hazards("")
    assert "adapts" in hazards(f"{EAGLE} --speculative-adaptive")
    found = SGLang().hazards(("env", "SGL_FORCE_SHUTDOWN=1", *SERVER))
    assert any("cuts requests" in hazard["what"] for hazard in found)


@pytest.mark.parametrize(
    ("version", "sigkill", "worst_s"),
    [("0.5.10", True, 30.0), ("0.5.17", True, 30.0), ("0.5.20", False, 90.0), ("0.5.23", False, 90.0)],
)
def test_the_drain_by_version(version: str, sigkill: bool, worst_s: float) -> None:
    drain = SGLang(version=version).drain(SERVER)
    assert drain.drains
    assert drain.children_need_main_only
    assert (drain.exits_with_sigkill, drain.worst_s) == (sigkill, worst_s)
    pinned = SGLang(version=version).drain((*SERVER, "--enable-hierarchical-cache"))
    assert (pinned.worst_s or 0) > worst_s


def test_where_it_listens_and_what_it_wants() -> None:
    engine = SGLang(version="0.5.17")
    assert engine.base_url(SERVER) == "http://127.0.0.1:30000"
    assert engine.base_url((*SERVER, "--host=0.0.0.0", "--port", "1")) == "http://127.0.0.1:1"
    assert engine.base_url((*SERVER, "--host", "::")) == "http://[::1]:30000"
    assert engine.base_url((*SERVER, "--ssl-certfile", "c")).startswith("https://")
    with pytest.raises(UsageError):
        engine.base_url((*SERVER, "--port", "many"))
    assert engine.headers(SERVER) == {}
    assert engine.headers((*SERVER, "--api-key", "k", "--admin-api-key", "a")) == {"Authorization": "Bearer k"}
    assert engine.headers((*SERVER, "--admin-api-key", "a")) == {"Authorization": "Bearer a"}
    with pytest.raises(UsageError) as caught:
        engine.headers((*SERVER, "--api-key", "sëcret"))
    assert "cret" not in str(caught.value)
    assert engine.cpu_bound(SERVER) is False
    assert engine.cpu_bound((*SERVER, "--device", "cpu")) is True
    wide = (*SERVER, "--tp", "4", "--dp-size", "2")
    assert engine.gpus(SERVER) == 1
    assert engine.gpus((*SERVER, "--device", "cpu")) == 0
    assert engine.gpus(wide) == 8
    assert engine.gpus((*wide, "--enable-dp-attention")) == 4
    assert engine.gpus((*wide, "--pp-size=2")) == 16
    assert engine.summary((*SERVER, *EAGLE.split()))["method"] == "EAGLE"
