"""SGLang's command line as its own parser reads it, by version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang import versions
from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.flags import first_argument, meant, options, parse
from draftmark.engines.sglang.refusals import inferred
from draftmark.engines.sglang.versions import Rules, installed, rules_for, shell_find
from draftmark.errors import UsageError

SERVER = ("python3", "-m", "sglang.launch_server")


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m sglang.launch_server --model-path m",
        "/opt/venv/bin/python -u -X dev -m sglang.launch_server",
        "/opt/venv/bin/python3.12 -m sglang serve --model m",
        "python -m sglang.cli.main serve m",
        "python -msglang.launch_server --model m",
        "sglang serve m",
        "/opt/venv/bin/sglang serve --model m",
        "python /opt/venv/bin/sglang serve m",
        "python3 /src/python/sglang/launch_server.py --model m",
        "uv run --with sglang python -m sglang.launch_server --model m",
        "numactl -m 0 -N 0 python3 -m sglang.launch_server --model m",
        "env HF_HUB_OFFLINE=1 nice -n 5 sglang serve m",
        "HF_HUB_OFFLINE=1 sglang serve m",
        "/opt/nvidia/nvidia_entrypoint.sh python3 -m sglang.launch_server",
        "/usr/local/bin/docker-entrypoint.sh sglang serve m",
        "docker run --gpus all -p 30000:30000 lmsysorg/sglang:v0.5.14-cu126 python3 -m sglang.launch_server",
        "docker run --entrypoint python3 lmsysorg/sglang -m sglang.launch_server --model m",
    ],
)
def test_a_server_is_recognised(line: str) -> None:
    assert SGLang().recognises(words(line))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "python3",
        "python3 -m sglang.bench_serving --backend sglang --port 30000",
        "python3 -m sglang.bench_serving --backend sglang serve",
        "python3 -m sglang.bench_one_batch_server --model m",
        "uv run python -m sglang.bench_serving --backend sglang serve",
        "python3 -m sglang.auto_benchmark run c.yaml",
        "sglang generate m",
        "sglang",
        "sglang version",
        "grep sglang serve",
        "python3 -c sglang serve",
        "python3 my.py -m sglang.launch_server",
        "python3 -m sglang_router.launch_router --worker-urls x",
        "python3 -m vllm.entrypoints.openai.api_server --model m",
        "vllm serve sglang",
        "llama-server -m sglang",
    ],
)
def test_anything_else_is_not(line: str) -> None:
    assert not SGLang().recognises(words(line))


def test_prefixes_aliases_equals_and_lists() -> None:
    command = (
        *SERVER,
        *words("--speculative-algo EAGLE --model m --tp=4 --cuda-graph-bs 1 2 4 --trust-remote-code"),
    )
    parsed = parse(command, Rules(17))
    assert parsed.value("--speculative-algorithm") == "EAGLE"
    assert parsed.value("--model-path") == "m"
    assert parsed.value("--tp-size") == "4"
    assert [each.values for each in parsed.given if each.name == "--cuda-graph-bs"] == [("1", "2", "4")]
    assert parsed.has("--trust-remote-code")
    assert not parsed.has("--enable-metrics")


def test_a_flag_takes_no_word_that_is_not_its_own() -> None:
    parsed = parse((*SERVER, *words("--disable-radix-cache --port 1 --random-seed -5 --port 2")), Rules(23))
    assert [(each.name, each.values) for each in parsed.given] == [
        ("--disable-radix-cache", ()),
        ("--port", ("1",)),
        ("--random-seed", ("-5",)),
        ("--port", ("2",)),
    ]
    assert parsed.value("--port") == "2"


def test_a_model_may_stand_without_a_flag() -> None:
    assert parse(words("sglang serve org/model --port 1"), Rules(23)).value("--model-path") == "org/model"


def test_a_no_form_switches_off() -> None:
    command = (*SERVER, "--enable-tf32-matmul", "--no-enable-tf32-matmul")
    assert not parse(command, Rules(23)).has("--enable-tf32-matmul")


def test_words_of_a_wrapper_are_no_flags() -> None:
    parsed = parse(words("docker run --port 9 --host h python3 -m sglang.launch_server --port 1"), Rules(17))
    assert parsed.value("--port") == "1"
    assert parsed.value("--host") is None


@pytest.mark.parametrize("minor", [20, 23])
def test_the_old_graph_flag_is_an_ambiguous_prefix_of_its_heirs(minor: int) -> None:
    assert {each.name for each in meant("--cuda-graph-max-bs", Rules(minor))} == {
        "--cuda-graph-max-bs-decode",
        "--cuda-graph-max-bs-prefill",
    }
    assert [each.name for each in meant("--cuda-graph-max-bs", Rules(17))] == ["--cuda-graph-max-bs"]


@pytest.mark.parametrize(
    ("version", "flag", "instead"),
    [
        ("0.5.20", "--cuda-graph-max-bs 8", "--cuda-graph-max-bs-decode"),
        ("0.5.23", "--cuda-graph-bs 1 2", "--cuda-graph-bs-decode"),
        ("0.5.22", "--mamba-scheduler-strategy no_buffer", "--mamba-radix-cache-strategy"),
        ("0.5.23", "--disable-piecewise-cuda-graph", "--cuda-graph-backend-prefill=disabled"),
        ("0.5.20", "--speculative-dflash-draft-window-size 4", "--speculative-draft-window-size"),
        ("0.5.23", "--speculative-skip-dp-mlp-sync", "take it out"),
        ("0.5.99", "--stream-output", "--incremental-streaming-output"),
        ("0.5.17", "--enable-nan-detection", "take it out"),
    ],
)
def test_a_flag_that_is_gone_names_its_heir(version: str, flag: str, instead: str) -> None:
    with pytest.raises(UsageError) as caught:
        SGLang(version=version).check((*SERVER, *flag.split()))
    assert flag.split()[0] in caught.value.what
    assert instead in caught.value.next_step


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.5.17", "--cuda-graph-max-bs 8 --mamba-scheduler-strategy no_buffer --disable-piecewise-cuda-graph"),
        ("0.5.10", "--cuda-graph-bs 1 2 --enable-nan-detection"),
        ("0.5.16", "--cuda-graph-max-bs 8"),
        ("0.5.13", "--cuda-graph-max-bs-decode 8"),  # not read: it may be the one that brought it
        ("0.5.30", "--a-flag-of-the-future 3"),
        ("0.4.1", "--some-old-flag"),
    ],
)
def test_what_a_version_has_or_may_have_is_let_through(version: str, flags: str) -> None:
    SGLang(version=version).check((*SERVER, *flags.split()))


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("--speculative-adaptive", "yet"),
        ("--modell m", "has no flag"),
        ("--speculative 3", "ambiguous"),
        ("--port", "lacks its value"),
        ("--port --host h", "lacks its value"),
    ],
)
def test_what_a_known_version_refuses_is_told(flags: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        SGLang(version="0.5.10").check((*SERVER, *flags.split()))


def test_a_typing_slip_is_guessed() -> None:
    with pytest.raises(UsageError) as caught:
        SGLang(version="0.5.23").check((*SERVER, "--speculativ-num-steps", "3"))
    assert "--speculative-num-steps" in caught.value.next_step


def test_the_version_is_inferred_from_flags_that_newer_ones_lack() -> None:
    assert inferred(SERVER).minor == 23
    assert inferred((*SERVER, "--cuda-graph-max-bs", "8")).minor == 17
    assert inferred((*SERVER, "--enable-nan-detection")).minor == 12
    assert inferred((*SERVER, "--nonsense")).minor == 23
    assert "--cuda-graph-max-bs" in (inferred((*SERVER, "--cuda-graph-max-bs", "8")).assumption or "")


@pytest.mark.parametrize(
    ("version", "minor", "certain"),
    [
        ("0.5.17", 17, True),
        ("v0.5.14.post1", 14, True),
        ("0.5.23rc0", 23, True),
        ("0.5.16", 14, False),
        ("0.5.11", 10, False),
        ("0.5.24", 23, False),
        ("0.6.0", 23, False),
        ("1.0.0", 23, False),
        ("0.5.9", 10, False),
        ("0.4.10", 10, False),
        ("nightly", 23, False),
        (None, 23, False),
    ],
)
def test_rules_of_a_version(version: str | None, minor: int, certain: bool) -> None:
    rules = rules_for(version)
    assert (rules.minor, rules.certain) == (minor, certain)
    assert (rules.assumption is None) == certain


def test_the_installed_version_stands_beside_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").touch()
    (tmp_path / "lib" / "python3.12" / "site-packages" / "sglang-0.5.14.post1.dist-info").mkdir(parents=True)
    (tmp_path / "lib" / "python3.12" / "site-packages" / "sglang_kernel-0.9.0.dist-info").mkdir()
    python = f"{tmp_path}/bin/python3"
    assert installed((python, "-m", "sglang.launch_server")) == "0.5.14.post1"
    assert installed((f"{tmp_path}/bin/sglang", "serve")) == "0.5.14.post1"
    assert installed(("/nowhere/bin/python3", "-m", "sglang.launch_server")) is None
    assert installed(words("docker run lmsysorg/sglang:v0.5.17-cu129 sglang serve m")) == "0.5.17"
    assert SGLang().rules((python, "-m", "sglang.launch_server")).minor == 14
    assert SGLang(version="0.5.20").rules((python, *SERVER[1:])).minor == 20


def test_another_host_is_asked_with_the_same_patterns() -> None:
    asked: list[str] = []

    def find(patterns: Sequence[str]) -> list[str]:
        asked.extend(patterns)
        return ["/opt/v/lib/python3.12/site-packages/sglang-0.5.20.dist-info"]

    assert installed(("/opt/v/bin/python3", "-m", "sglang.launch_server"), find) == "0.5.20"
    assert asked[0] == "/opt/v/lib/python3*/site-packages/sglang-*.dist-info"
    line = shell_find(["/opt/a b/lib/python3*/site-packages/sglang-*.dist-info"])
    assert line == "ls -d '/opt/a b/lib/python3'*/site-packages/sglang-*.dist-info 2>/dev/null"


def test_every_option_names_one_that_there_is() -> None:
    known = options()
    assert len(known) > 500
    for each in known.values():
        assert each.name in known
        assert known[each.name].arity == each.arity
        assert each.since <= each.until
        assert {each.since, each.until} <= set(versions.read_minors())


LINE = st.lists(
    st.one_of(
        st.sampled_from([*options(), "--x", "-1", "--", "-", "=", "--speculative-num-steps=", "é", ""]),
        st.text(max_size=6),
    ),
    max_size=12,
)


@given(LINE, st.sampled_from(versions.read_minors()))
def test_any_words_are_taken_apart_without_loss(line: list[str], minor: int) -> None:
    command = (*SERVER, *line)
    parsed = parse(command, Rules(minor))
    covered = [index for each in parsed.given for index in range(each.start, each.stop)]
    assert covered == sorted(set(covered))
    assert first_argument(command) == 3
    assert all(3 <= index < len(command) for index in covered)
