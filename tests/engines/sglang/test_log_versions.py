"""A log in the wording of each version that was read; tests/data/sglang has them, made from the sources' words."""

from pathlib import Path
from typing import Any

import pytest

from draftmark.engines.sglang.log import SglangLog, read_log, read_log_file
from draftmark.engines.sglang.log.grammar import VersionRange, grammar
from draftmark.engines.sglang.log.nouns import KvLine

HERE = Path(__file__).parents[2] / "data" / "sglang"
VERSIONS = ("0.5.10", "0.5.12", "0.5.14", "0.5.17", "0.5.20", "0.5.23")


def log_of(version: str) -> SglangLog:
    return read_log_file(HERE / f"sglang-{version}.log")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_line_is_known(version: str) -> None:
    log = log_of(version)
    assert log.lines.unknown == 0, log.lines.samples
    assert log.boot.ready
    assert log.boot.server_args_complete
    assert log.boot.summary is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wording_gives_the_version(version: str) -> None:
    found = log_of(version).boot.version_range
    assert found.since in (version, None if version == "0.5.10" else version)
    assert found.until in (version, None if version == "0.5.23" else version)
    assert log_of(version).boot.version is None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wording_alone_tells_old_from_new(version: str) -> None:
    """Without the arguments, as after a log's rotation, the range is wider, and right."""
    lines = (HERE / f"sglang-{version}.log").read_text(encoding="utf-8").splitlines(keepends=True)
    found = read_log(line for line in lines if "server_args=" not in line).boot.version_range
    order = VERSIONS.index
    assert found.since is None or order(found.since) <= order(version)
    assert found.until is None or order(found.until) >= order(version)
    assert found != VersionRange()


def test_the_order_before_0_5_14_target_pools_then_draft() -> None:
    boot = log_of("0.5.10").boot
    assert [w.type for w in boot.weights] == ["LlamaForCausalLM", "LlamaForCausalLMEagle3"]
    assert boot.weights[0].quant == "quant=fp8, fmt=e4m3"
    assert [(kv.of, kv.dtype, kv.tokens) for kv in boot.kv] == [("target", None, 184112), ("draft", None, 184112)]
    assert [g.name for g in boot.graphs] == ["target verify", "draft decode", "draft extend"]
    assert (boot.graphs[0].mem_gib, boot.graphs[0].avail_gib, boot.graphs[0].bs) == (1.12, 14.43, ())


def test_unnamed_graphs_of_a_server_that_does_not_draft() -> None:
    text = (HERE / "sglang-0.5.10.log").read_text(encoding="utf-8").replace("'EAGLE3'", "None")
    assert read_log(text.splitlines()).boot.graphs[0].name == "target decode"


def test_ranks_the_first_wins_and_differences_are_told() -> None:
    boot = log_of("0.5.10").boot
    assert boot.gpu_avail_before_weights_gib == 78.52
    assert [rank.rank for rank in boot.ranks] == ["TP0", "TP1"]
    told = {d.what: (d.rank, d.other) for d in boot.differences}
    assert told["gpu_avail_before_weights_gib"] == ("TP1", 78.20)
    assert "mamba" not in told
    boot = log_of("0.5.20").boot
    assert [rank.rank for rank in boot.ranks] == ["DP0 TP0 EP0", "DP1 TP1 EP1"]
    assert boot.kv[0].tokens == 623960
    assert {d.what for d in boot.differences} == {"gpu_avail_before_weights_gib", "weights", "kv"}


def test_mla_has_one_size() -> None:
    boot = log_of("0.5.14").boot
    assert boot.kv == (
        KvLine("torch.bfloat16", 571024, None, None, 37.38, "target"),
        KvLine("torch.bfloat16", 571024, None, None, 0.61, "draft"),
    )
    assert boot.graphs[0][:5] == ("target verify", 4, (1, 2, 4), 0.41, 18.49)


def test_an_upper_bound_is_no_pool() -> None:
    boot = log_of("0.5.17").boot
    assert [(kv.tokens, kv.kv_gib, kv.label) for kv in boot.kv] == [(1400000, 58.90, "post-capture")]
    assert [(kv.tokens, kv.label) for kv in boot.kv_upper_bound] == [(1200000, "SWA"), (1500000, None)]
    assert [(s.full_tokens, s.swa_tokens, s.mem_gib) for s in boot.swa] == [
        (1500000, 1200000, None),
        (1500000, 1200000, 63.2),
    ]


def test_arguments_as_a_dict() -> None:
    args = log_of("0.5.20").boot.server_args
    assert args["speculative_num_steps"] == 3
    assert args["chat_template"] == "it's {a: b}"
    assert args["speculative_draft_model_path"] is None
    graphs: Any = args["cuda_graph_config"]
    assert graphs["decode"]["bs"] == [1, 2]


def test_batch_sizes_on_the_end_line() -> None:
    boot = log_of("0.5.23").boot
    verify = next(g for g in boot.graphs if g.name == "target verify")
    assert (verify.num_tokens_per_bs, verify.bs, verify.mem_gib) == (4, (1, 2, 4), 0.4)
    assert boot.replayssm
    assert [kv.label for kv in boot.kv] == [None, "MiniMax MSA-v1 index", None]


WARNINGS = {
    "0.5.10": {"running-reset-48": "48", "tokens-larger-than-profiled": "184112"},
    "0.5.14": {"running-reduced-by-kv": "33"},
    "0.5.17": {"post-capture-running": "2048"},
    "0.5.20": {"running-reset-48": "48", "running-capped-by-mamba": "20"},
}


@pytest.mark.parametrize("version", WARNINGS)
def test_what_cuts_concurrency(version: str) -> None:
    got = {w.kind: w.values["got"] for w in log_of(version).boot.warnings if "got" in w.values}
    assert got == WARNINGS[version]


WAYS = {
    "0.5.10": "graceful",
    "0.5.12": "exception",
    "0.5.14": "hang",
    "0.5.17": "child-died",
    "0.5.20": "graceful",
    "0.5.23": "graceful",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_ends(version: str) -> None:
    ending = log_of(version).ending
    assert ending.way == WAYS[version]
    if version in ("0.5.20", "0.5.23"):  # these exit 0
        assert ending.teardown is not None
        assert not ending.teardown.include_parent
    assert (ending.teardown is None) == (version in ("0.5.10", "0.5.12"))


def test_keys_are_masked() -> None:
    args = said_args("ServerArgs(api_key='sk-1', admin_api_key=None, ssl_keyfile_password='x', port=1)")
    assert args == {"api_key": "***", "admin_api_key": None, "ssl_keyfile_password": "***", "port": 1}


def said_args(text: str) -> dict[str, object]:
    return read_log([f"[2026-01-01 00:00:00] server_args={text}\n"]).boot.server_args


def test_a_contradiction_is_told() -> None:
    lines = (HERE / "sglang-0.5.23.log").read_text(encoding="utf-8").splitlines()
    old = "[2026-01-01 00:00:00] Capture cuda graph begin. This can take up to several minutes. avail mem=1.00 GB"
    assert not read_log(lines).boot.version_range.contradictory
    assert read_log([*lines, old]).boot.version_range.contradictory


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("Successfully installed sglang-0.5.14 torch", "0.5.14"),
        ("Pulling image lmsysorg/sglang:v0.5.23-cu130", "0.5.23"),
        ("sglang==0.5.17.post1", "0.5.17.post1"),
        ("SGLang version: 0.5.10rc0", "0.5.10rc0"),
        ("sglang-kernel 0.4.10", None),
    ],
)
def test_the_version_where_it_is_named(line: str, version: str | None) -> None:
    later = "[2026-01-01 00:00:00] Load weight begin. avail mem=1.00 GB"
    assert read_log([line, later]).boot.version == version


def test_the_rules_are_complete() -> None:
    known = grammar()
    names = [rule.name for rule in known.rules]
    assert len(names) == len(set(names))
    for rule in known.rules:
        assert rule.use in ("boot", "warning", "failure", "serving", "ending", "noise"), rule.name
        assert rule.hints, rule.name
        for version in (rule.since, rule.until):
            assert version is None or version in known.versions, rule.name
