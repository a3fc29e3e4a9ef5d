"""An arm in SGLang's command line: the contract suite, and what is particular to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang.adaptive import configuration
from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.flags import parse
from draftmark.engines.sglang.versions import rules_for
from draftmark.errors import InconclusiveError, UsageError
from draftmark.model import Arm
from draftmark.testing.engine_contract import EngineContract


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "m", "--port", "31000")
CHAIN = (
    *SERVER,
    *words("--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1"),
    *words("--speculative-num-draft-tokens 4 --mem-fraction-static 0.62"),
)
TREE = (
    *SERVER,
    *words("--speculative-algo eagle3 --speculative-draft-model d --speculative-num-steps=5"),
    *words("--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --api-key secret"),
)
NGRAM = (*words("numactl -N0 sglang serve m --speculative-algorithm NGRAM"), "--speculative-num-draft-tokens", "4")
DFLASH = (*SERVER, *words("--speculative-algorithm DFLASH --speculative-draft-model-path d --enable-metrics"))
ADAPTIVE = (
    *SERVER,
    *words("--speculative-algorithm EAGLE --speculative-draft-model-path d --speculative-adaptive"),
)
ADAPT = ("--speculative-adaptive", "")


class TestContract(EngineContract):
    commands = (
        (SERVER, 0),
        (CHAIN, 3),
        (TREE, 5),
        (NGRAM, 4),
        (DFLASH, 16),
        (ADAPTIVE, 3),
        ((*SERVER, "--speculative-algorithm", "EAGLE"), 3),
        ((*SERVER, "--speculative-algorithm", "none"), 0),
        ((*SERVER, "--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "d"), 3),
        ((*SERVER, "--speculative-algorithm", "NGRAM"), 12),
        ((*SERVER, "--speculative-draft-model-path", "d"), 0),
    )
    strangers = (
        ("llama-server", "-m", "x.gguf"),
        ("python3", "-m", "sglang.bench_serving", "--backend", "sglang"),
        ("vllm", "serve", "m"),
        (),
    )
    live_depths = (2, 3, 7)
    failures = (
        (
            [
                "usage: launch_server.py [-h] --model-path MODEL_PATH",
                "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max",
            ],
            "ambiguous option",
        ),
        (
            [
                "[2026-11-29 16:57:38] Scheduler hit an exception: Traceback (most recent call last):",
                "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.62.",
                "[2026-11-29 16:57:38] Received sigquit from a child process. It usually means the child failed.",
            ],
            "leave no GPU memory",
        ),
        (
            ["RuntimeError: Capture cuda graph failed: x", "torch.OutOfMemoryError: CUDA out of memory. Tried"],
            "CUDA out of memory",
        ),
        (
            ["x", "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): in use"],
            "Errno 98",
        ),
        (
            ["[2026-11-29 16:46:43] Subprocess scheduler_0 (pid=2367) crashed with exit code -9. Triggering"],
            "exit code -9",
        ),
    )

    @pytest.fixture
    def engine(self) -> SGLang:
        return SGLang(method="NGRAM", version="0.5.17")


ENGINE = SGLang(method="EAGLE3", version="0.5.17")


def shape(command: tuple[str, ...]) -> dict[str, str | None]:
    parsed = parse(command, rules_for("0.5.17"))
    names = ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens", "adaptive", "draft-model-path")
    return {n: parsed.value(f"--speculative-{n}") for n in names if parsed.has(f"--speculative-{n}")}


def test_off_takes_all_that_shapes_speculation_and_keeps_the_draft_model() -> None:
    assert shape(ENGINE.with_arm(TREE, Arm(0))) == {"draft-model-path": "d"}
    assert shape(ENGINE.with_arm(ADAPTIVE, Arm(0))) == {"draft-model-path": "d"}
    assert ENGINE.with_arm(SERVER, Arm(0)) == SERVER


def test_a_chain_writes_the_whole_triple_in_place() -> None:
    assert ENGINE.with_arm(CHAIN, Arm(5)) == (
        *SERVER,
        *words("--speculative-algorithm NEXTN --speculative-num-steps 5 --speculative-eagle-topk 1"),
        *words("--speculative-num-draft-tokens 6 --mem-fraction-static 0.62"),
    )


def test_what_runs_today_is_left_as_it_is_written() -> None:
    for command in (CHAIN, TREE, NGRAM, DFLASH):
        assert ENGINE.with_arm(command, ENGINE.arm(command)) == command


@pytest.mark.parametrize(("depth", "tokens"), [(1, "4"), (2, "7"), (3, "10"), (5, "16"), (8, "25")])
def test_a_tree_keeps_its_width_and_its_tokens_a_step(depth: int, tokens: str) -> None:
    got = shape(ENGINE.with_arm(TREE, Arm(depth)))
    assert (got["num-steps"], got["eagle-topk"], got["num-draft-tokens"]) == (str(depth), "4", tokens)


def test_the_method_is_brought_only_where_it_is_told() -> None:
    with pytest.raises(UsageError, match="names no speculative algorithm"):
        SGLang(version="0.5.17").with_arm(SERVER, Arm(3))
    got = shape(ENGINE.with_arm((*SERVER, "--speculative-draft-model-path", "d"), Arm(2)))
    assert got == {
        "algorithm": "EAGLE3",
        "num-steps": "2",
        "eagle-topk": "1",
        "num-draft-tokens": "3",
        "draft-model-path": "d",
    }
    with pytest.raises(UsageError, match="no speculative algorithm"):
        SGLang(method="medusa").with_arm(SERVER, Arm(1))


def test_a_block_is_written_where_the_user_writes_it() -> None:
    assert ENGINE.with_arm(NGRAM, Arm(8))[-1] == "8"
    block = (*DFLASH, "--speculative-dflash-block-size", "8")
    assert ENGINE.depth(block) == 8
    assert ENGINE.with_arm(block, Arm(4)) == (*DFLASH, "--speculative-dflash-block-size", "4")
    spark = (*SERVER, "--speculative-algorithm", "DSPARK", "--speculative-dspark-block-size", "7")
    assert ENGINE.depth(spark) == 7


@pytest.mark.parametrize(
    "flags",
    ["--speculative-algorithm UNO", "--speculative-algorithm DSPARK", "--speculative-algorithm NGRAM "
     "--speculative-num-draft-tokens many"],
)  # fmt: skip
def test_no_depth_is_told_where_none_is_known(flags: str) -> None:
    with pytest.raises(UsageError):
        ENGINE.depth((*SERVER, *flags.split()))


@pytest.mark.parametrize(
    ("architecture", "shape_wanted"),
    [("LlamaForCausalLM", (5, "4", "11")), ("Qwen3MoeForCausalLM", (3, "1", "8")), (None, (3, "1", "8"))],
)
def test_a_shape_left_to_the_server_follows_the_architecture(
    tmp_path: Path, architecture: str | None, shape_wanted: tuple[int, str, str]
) -> None:
    if architecture:
        (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    command = (*SERVER[:3], "--model-path", str(tmp_path), "--speculative-algorithm", "EAGLE3")
    steps, topk, tokens = shape_wanted
    assert ENGINE.depth(command) == steps
    got = shape(ENGINE.with_arm(command, Arm(7)))
    assert (got["eagle-topk"], got["num-draft-tokens"]) == (topk, tokens)
    hazards = [hazard["what"] for hazard in ENGINE.hazards(command)]
    assert any("own choice" in what for what in hazards) == (architecture is None)


# --- adaptive ---------------------------------------------------------------------------------------------


def test_adaptive_speculation_is_an_arm_of_its_own() -> None:
    assert ENGINE.arm(ADAPTIVE) == Arm(3, (ADAPT,))
    fixed = ENGINE.with_arm(ADAPTIVE, Arm(3))
    assert fixed != ADAPTIVE
    assert "--speculative-adaptive" not in fixed
    again = ENGINE.with_arm(CHAIN, Arm(3, (ADAPT,)))
    assert shape(again)["num-steps"] == "3"
    assert ENGINE.arm(again) == Arm(3, (ADAPT,))
    assert ENGINE.with_arm(again, Arm(3, (ADAPT,))) == again


@pytest.mark.parametrize(("version", "start"), [("0.5.12", 3), ("0.5.20", 3), ("0.5.23", 3)])
def test_adaptive_starts_in_the_middle_of_its_candidates(version: str, start: int) -> None:
    engine = SGLang(version=version)
    arm = engine.adaptive(CHAIN)
    assert arm == Arm(start, (ADAPT,))
    assert engine.arm(engine.with_arm(CHAIN, arm)) == arm
    assert engine.refuse(CHAIN, arm) is None


def test_adaptive_keeps_what_the_command_line_says_of_it(tmp_path: Path) -> None:
    assert ENGINE.adaptive(ADAPTIVE) == ENGINE.arm(ADAPTIVE)
    file = tmp_path / "adaptive.json"
    file.write_text(json.dumps({"1": {"candidate_steps": [0]}, "8": {"candidate_steps": [0]}}), encoding="utf-8")
    arm = ENGINE.adaptive((*CHAIN, "--speculative-adaptive-config", str(file)))
    assert arm == Arm(1, (ADAPT, ("--speculative-adaptive-config", str(file))))
    assert "/" not in arm.name


@pytest.mark.parametrize(
    ("version", "command", "because"),
    [
        ("0.5.10", CHAIN, "came with SGLang 0.5.12"),
        ("0.5.20", NGRAM, "only EAGLE and EAGLE3 adapt"),
    ],
)
def test_adaptive_is_refused_where_there_is_none(version: str, command: tuple[str, ...], because: str) -> None:
    engine = SGLang(version=version)
    refused = engine.refuse(command, engine.adaptive(command))
    assert refused is not None
    assert because in refused.because


def test_the_start_of_adaptive_speculation_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "adaptive.json"
    file.write_text('{"1": {"candidate_steps": [2, 4]}, "8": {"candidate_steps": [0, 2]}, "ema_alpha": 0.3}')
    command = (*ADAPTIVE, "--speculative-adaptive-config", str(file))
    assert ENGINE.depth(command) == 2
    assert ENGINE.refuse(command, Arm(2, (ADAPT, ("--speculative-adaptive-config", str(file))))) is None
    refused = ENGINE.refuse(command, Arm(3, (ADAPT, ("--speculative-adaptive-config", str(file)))))
    assert refused is not None
    assert "candidate_steps [0, 2, 4]" in refused.because


def test_a_configuration_from_the_best_depths() -> None:
    made = configuration({1: 5, 8: 3, 32: 1}, rules_for("0.5.17"))
    assert made.document == {
        "1": {"candidate_steps": [3, 5]},
        "8": {"candidate_steps": [1, 3, 5]},
        "32": {"candidate_steps": [1, 3]},
    }
    assert json.loads(made.json()) == made.document
    assert " ".join(made.flags("/etc/a.json")) == (
        "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 "
        "--speculative-adaptive --speculative-adaptive-config /etc/a.json"
    )


def test_a_configuration_of_the_first_version_that_adapts_is_one_list() -> None:
    assert configuration({1: 5, 8: 3, 32: 0}, rules_for("0.5.12")).document == {"candidate_steps": [3, 5]}
    with pytest.raises(InconclusiveError):
        configuration({1: 5, 32: 0}, rules_for("0.5.12"))
    with pytest.raises(UsageError):
        configuration({1: 5, 32: 0}, rules_for("0.5.10"))


@pytest.mark.parametrize("best", [{}, {0: 3}, {1: -1}])
def test_no_configuration_from_nothing(best: dict[int, int]) -> None:
    with pytest.raises(UsageError):
        configuration(best, rules_for("0.5.17"))


def test_one_best_depth_needs_no_adapting() -> None:
    with pytest.raises(InconclusiveError, match="depth 3 is best at every"):
        configuration({1: 3, 8: 3}, rules_for("0.5.17"))


@given(st.dictionaries(st.integers(1, 256), st.integers(0, 10), min_size=2))
def test_every_configuration_starts_and_can_reach_each_best_depth(best: dict[int, int]) -> None:
    if len(set(best.values())) < 2:
        return
    made = configuration(best, rules_for("0.5.23"))
    slots = {int(key): value["candidate_steps"] for key, value in made.document.items()}  # type: ignore[index]
    assert slots.keys() == best.keys()
    assert all(best[level] in slots[level] == sorted(set(slots[level])) for level in best)
    assert made.start in {step for steps in slots.values() for step in steps}


def test_a_knob_stays_where_its_flag_stood_and_moves_no_other() -> None:
    server = (*SERVER, "--mem-fraction-static", "0.7", "--enable-metrics", *CHAIN[len(SERVER) : -2])
    lower = tuple("0.6" if word == "0.7" else word for word in server)
    assert ENGINE.with_arm(server, Arm(3, (("--mem-fraction-static", "0.6"),))) == lower
    both = ENGINE.with_arm(server, Arm(5, (("--mem-fraction-static", "0.6"), ("--max-running-requests", "8"))))
    assert both == (*ENGINE.with_arm(lower, Arm(5)), "--max-running-requests", "8")


# --- any command line -------------------------------------------------------------------------------------

OTHERS = st.lists(
    st.sampled_from(
        [
            ("--tp", "2"),
            ("--mem-fraction-static", "0.8"),
            ("--disable-radix-cache",),
            ("--cuda-graph-bs", "1", "2", "8"),
            ("--served-model-name=x",),
            ("--host", "0.0.0.0"),
            ("--speculative-draft-model-path", "d"),
            ("--speculative-token-map", "t"),
            ("--max-running-requests", "32"),
        ]
    ),
    unique=True,
)
SPEC = st.one_of(
    st.just(()),
    st.builds(
        lambda algorithm, steps, topk, extra: (
            ("--speculative-algorithm", algorithm),
            (f"--speculative-num-steps={steps}",),
            ("--speculative-eagle-topk", str(topk)),
            (
                "--speculative-num-draft-tokens",
                str(steps + 1 if topk == 1 else min(steps * topk, steps + extra) + 1),
            ),
        ),
        st.sampled_from(["EAGLE", "EAGLE3", "NEXTN", "eagle", "STANDALONE"]),
        st.integers(1, 8),
        st.integers(1, 8),
        st.integers(0, 30),
    ),
    st.integers(2, 64).map(lambda d: (("--speculative-algo", "NGRAM"), ("--speculative-num-draft-tokens", str(d)))),
)
OWN = ("--speculative-algorithm", "--speculative-algo", "--speculative-num-steps", "--speculative-eagle-topk",
       "--speculative-num-draft-tokens")  # fmt: skip


def not_own(command: tuple[str, ...]) -> list[tuple[str, ...]]:
    parsed = parse(command, rules_for("0.5.17"))
    return [(each.spelled, *each.values) for each in parsed.given if each.spelled not in OWN]


@given(OTHERS, SPEC, st.randoms(), st.lists(st.integers(0, 16), min_size=1, max_size=4))
def test_only_an_arms_own_flags_change(
    others: list[tuple[str, ...]], spec: tuple[tuple[str, ...], ...], random: object, depths: list[int]
) -> None:
    groups = [*others, *spec]
    random.shuffle(groups)  # type: ignore[attr-defined]
    command = (*SERVER, *(word for group in groups for word in group))
    here = command
    for depth in depths:
        here = ENGINE.with_arm(here, Arm(depth))
        assert ENGINE.depth(here) == depth
        assert not_own(here) == not_own(command)
        assert here[: len(SERVER)] == SERVER
    was = ENGINE.arm(command)
    if was.depth and all(depths):
        assert shape(ENGINE.with_arm(here, was)).keys() == shape(command).keys()
