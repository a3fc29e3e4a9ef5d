"""The flags that `--knob` may vary, by engine and version."""

from __future__ import annotations

import pytest

from draftmark.engines.llamacpp.engine import LlamaCpp
from draftmark.engines.llamacpp.knobs import table as llama_table
from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.flags import options
from draftmark.engines.sglang.knobs import table as sglang_table
from draftmark.model import Arm

CHAIN = (
    "python3", "-m", "sglang.launch_server", "--model-path", "m", "--mem-fraction-static", "0.85",
    "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
    "--speculative-num-draft-tokens", "4",
)  # fmt: skip
LLAMA = ("llama-server", "-m", "m.gguf", "-b", "1024", "--spec-draft-n-max", "4", "--spec-draft-model", "d.gguf")


def named(engine: SGLang | LlamaCpp, command: tuple[str, ...], name: str) -> tuple[str, str | None]:
    (spec,) = (spec for spec in engine.knobs(command) if spec.name == name)
    return spec.flag, spec.runs


def test_every_flag_is_one_of_the_engines_and_has_a_source() -> None:
    for entry in sglang_table().values():
        assert entry["source"]
        for flag in entry["flags"]:
            assert options()[flag].name == flag
    for entry in llama_table().values():
        assert entry["source"]
        assert all(name.startswith("-") for name in entry["names"])


@pytest.mark.parametrize(
    ("version", "flag"), [("0.5.12", "--cuda-graph-max-bs"), ("0.5.14", "--cuda-graph-max-bs-decode")]
)
def test_a_renamed_flag_is_that_of_the_version(version: str, flag: str) -> None:
    assert named(SGLang(version=version), CHAIN, "cuda-graph-bs") == (flag, None)


def test_an_old_spelling_on_the_command_line_is_kept() -> None:
    """Both at once would contradict each other."""
    command = (*CHAIN, "--cuda-graph-max-bs", "8")
    engine = SGLang(version="0.5.17")
    assert named(engine, command, "cuda-graph-bs") == ("--cuda-graph-max-bs", "8")
    changed = engine.with_arm(command, Arm(3, (("--cuda-graph-max-bs", "64"),)))
    assert [word for word in changed if "cuda-graph" in word] == ["--cuda-graph-max-bs"]
    assert changed[changed.index("--cuda-graph-max-bs") + 1] == "64"


def test_what_runs_is_read_from_the_command_line() -> None:
    engine = SGLang(version="0.5.17")
    assert named(engine, CHAIN, "mem-fraction") == ("--mem-fraction-static", "0.85")
    assert named(engine, CHAIN, "draft-tokens") == ("--speculative-num-draft-tokens", "4")
    ngram = (*CHAIN[:7], "--speculative-algorithm", "NGRAM")
    assert not {"topk", "draft-tokens"} & {spec.name for spec in engine.knobs(ngram)}


def test_a_tree_is_written_whole_and_one_that_cannot_be_is_refused() -> None:
    engine = SGLang(version="0.5.17")
    topk, tokens = "--speculative-eagle-topk", "--speculative-num-draft-tokens"
    tree = engine.with_arm(CHAIN, Arm(3, ((topk, "2"),)))
    assert [tree[tree.index(flag) + 1] for flag in ("--speculative-num-steps", topk, tokens)] == ["3", "2", "7"]
    assert tree.count(topk) == tree.count(tokens) == 1
    assert engine.refuse(CHAIN, Arm(3, ((topk, "2"), (tokens, "6")))) is None
    for arm in (Arm(3, ((tokens, "9"),)), Arm(3, ((topk, "2"), (tokens, "8"))), Arm(0, ((topk, "2"),))):
        assert engine.refuse(CHAIN, arm) is not None, arm


def test_llama_server_has_each_flag_once() -> None:
    engine = LlamaCpp()
    assert named(engine, LLAMA, "batch") == ("--batch-size", "1024")
    for depth in (4, 6, 0):
        changed = engine.with_arm(LLAMA, Arm(depth, (("--batch-size", "512"), ("--flash-attn", "on"))))
        assert "-b" not in changed
        assert changed[changed.index("--batch-size") + 1] == "512"
        assert changed[changed.index("--flash-attn") + 1] == "on"
        assert engine.depth(changed) == depth
