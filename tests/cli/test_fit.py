"""`draftmark fit` from the outside: forms of the command line, the document, the table, what is refused."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.main import main


@dataclass(frozen=True, slots=True)
class Finished:
    status: int
    out: str
    err: str


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "torch_dtype": "bfloat16",
    "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "max_position_embeddings": 262144,
    "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "partial_rotary_factor": 0.25, "tie_word_embeddings": False,
    "attention_bias": False,
}  # fmt: skip
# Each speculation flag of NEXTN is brought by the arm.
FLAGS = "--mem-fraction-static 0.8 --attention-backend triton"


def model(folder: Path, config: dict[str, Any], name: str = "model") -> Path:
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def told(done: Any) -> dict[str, Any]:
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["schema"] == "draftmark.fit/1"
    assert isinstance(found, dict)
    return found


def width(arm: dict[str, Any]) -> int:
    return int(arm["high"]["kv_tokens"] - arm["low"]["kv_tokens"])


Run = Callable[..., Finished]


@pytest.fixture
def draftmark(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """In this process: nothing is started, so nothing needs one of its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*words: str, env: Mapping[str, str] | None = None) -> Finished:
        with monkeypatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            status = main(words)
        out, err = capfd.readouterr()
        return Finished(status, out, err)

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_dense_model_from_its_config(draftmark: Run, tmp_path: Path) -> None:
    """No recurrent state; without speculation the running limit is SGLang's estimate."""
    found = told(
        draftmark("fit", str(model(tmp_path, LLAMA)), "--gpu", "h100", "--engine", "sglang==0.5.14", "--depth", "0",
                  "--flags", FLAGS, "--json")
    )  # fmt: skip
    (arm,) = found["arms"]
    budget = 0.8 * (81_559 - 1.22 * 1024) * 2**20 - 16.06e9
    assert arm["kv_tokens"] == pytest.approx(budget / 131_072, rel=0.02)
    assert arm["low"]["kv_tokens"] < arm["kv_tokens"] < arm["high"]["kv_tokens"]
    assert (arm["fits"], arm["max_running_requests"], arm["state_slots"]) == (True, 2048, None)
    assert found["gpus"] == [{"name": "h100", "total_mib": 81_559}]
    assert (found["engine"], found["version"], found["calibrated_from"]) == ("sglang", "0.5.14", None)


def test_the_founding_case(draftmark: Run, tmp_path: Path) -> None:
    """Qwen3-Next-80B on two H200, 0.5.14: from depth 3 to 5, 21 requests become 17 (docs/fit.md)."""
    path = model(tmp_path, NEXT)
    found = told(
        draftmark("fit", str(path), "--gpu", "h200", "--engine-version", "0.5.14", "--tp", "2", "--depth", "3..5",
                  "--method", "NEXTN", "--flags", "--mem-fraction-static 0.66", "--json")
    )  # fmt: skip
    runs = {arm["depth"]: arm["max_running_requests"] for arm in found["arms"]}
    assert (runs[3], runs[5]) == (21, 17)
    assert {arm["binding"] for arm in found["arms"]} == {"state-slots"}
    assert any("--mamba-full-memory-ratio" in lever for lever in found["arms"][2]["to_get_more"])


def test_a_command_line_is_read_as_sglang_reads_it(draftmark: Run, tmp_path: Path) -> None:
    command = f"cmd:python3 -m sglang.launch_server --model-path {model(tmp_path, LLAMA)} {FLAGS}"
    asked = (command, "--gpu", "80GiB", "--engine-version", "0.5.17", "--depth", "0", "--json")
    plain = told(draftmark("fit", *asked))["arms"][0]
    fp8 = told(draftmark("fit", *asked, "--flags", "--kv-cache-dtype fp8_e4m3"))["arms"][0]
    assert fp8["kv_tokens"] == pytest.approx(2 * plain["kv_tokens"], abs=2)
    two = told(draftmark("fit", *asked, "--tp", "2"))["arms"][0]
    assert two["kv_tokens"] > 2 * plain["kv_tokens"]


def test_people_get_a_table_and_what_to_change(draftmark: Run, tmp_path: Path) -> None:
    done = draftmark("fit", str(model(tmp_path, NEXT)), "--gpu", "h200", "--engine-version", "0.5.17", "--tp", "2",
                     "--depth", "off,3,8", "--flags", "--mem-fraction-static 0.7 --disable-radix-cache",
                     env={"COLUMNS": "110"})  # fmt: skip
    assert done.status == 0, done.err
    assert "depth   fits" in done.out
    assert "more: " in done.out
    assert "assumed: " in done.out
    assert done.out.rstrip().endswith(".")


@pytest.mark.parametrize(
    ("config", "words", "said"),
    [
        ({"architectures": ["NobodyKnowsForCausalLM"], "model_type": "nobody"}, (), "NobodyKnows"),
        ({k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}, (), "num_hidden_layers"),
        ({**LLAMA, "architectures": ["DeepseekV4ForCausalLM"]}, (), "DeepseekV4"),
        (LLAMA, ("--flags", "--mem-fraction-static much"), "not a number"),
        (LLAMA, ("--gpu", "h9000"), "neither a known card nor a size"),
        (LLAMA, ("--depth", "3"), "no speculative algorithm"),
    ],
)
def test_what_cannot_be_told_is_refused(
    draftmark: Run, tmp_path: Path, config: dict[str, Any], words: tuple[str, ...], said: str
) -> None:
    asked = ("--gpu", "h100") if "--gpu" not in words else ()
    depth = () if "--depth" in words else ("--depth", "0")
    done = draftmark("fit", str(model(tmp_path, config)), *asked, *depth, *words, "--json")
    assert done.status == 2
    assert said in done.err
    assert done.out == ""


def test_without_a_card_or_a_log_nothing_is_made_up(draftmark: Run, tmp_path: Path) -> None:
    done = draftmark(
        "fit", str(model(tmp_path, LLAMA)), "--depth", "0", "--flags", FLAGS, env={"PATH": "/nonexistent"}
    )
    assert done.status == 2
    assert "how much memory the GPU has is not known" in done.err


@pytest.mark.parametrize(
    "text", ["", "nothing of SGLang's\n" * 50, "\x00\xff\n", "server_args=ServerArgs(model_path="]
)
def test_a_log_that_tells_nothing(draftmark: Run, tmp_path: Path, text: str) -> None:
    log = tmp_path / "boot.log"
    log.write_text(text, encoding="latin-1")
    path = str(model(tmp_path, LLAMA))
    assert draftmark("fit", path, "--log", str(log), "--depth", "0").status == 2
    found = told(
        draftmark("fit", path, "--log", str(log), "--depth", "0", "--gpu", "h100", "--flags", FLAGS, "--json")
    )
    assert found["calibrated_from"] is None
    assert found["arms"][0]["kv_tokens"] > 0


def test_a_draft_without_config_is_assumed_and_widens_the_bounds(draftmark: Run, tmp_path: Path) -> None:
    path = str(model(tmp_path, LLAMA))
    method = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /nowhere/draft"
    found = told(
        draftmark("fit", path, "--gpu", "h100", "--engine-version", "0.5.17", "--depth", "off,3", "--flags",
                  f"{FLAGS} {method}", "--json")
    )  # fmt: skip
    assert any("draft's config cannot be used" in each for each in found["assumptions"])
    off, three = found["arms"]
    assert (
        three["high"]["kv_tokens"] - three["low"]["kv_tokens"] > off["high"]["kv_tokens"] - off["low"]["kv_tokens"]
    )
    standalone = method.replace("EAGLE3", "STANDALONE")
    refused = draftmark("fit", path, "--gpu", "h100", "--depth", "3", "--flags", f"{FLAGS} {standalone}")
    assert refused.status == 2


@pytest.mark.parametrize("version", [None, "0.5.13", "0.6.2", "0.4.9"])
def test_a_version_that_was_not_read_is_said_and_widens_the_bounds(
    draftmark: Run, tmp_path: Path, version: str | None
) -> None:
    path = str(model(tmp_path, NEXT))
    asked = (path, "--gpu", "h200", "--tp", "2", "--depth", "3", "--flags", FLAGS, "--json")
    found = told(draftmark("fit", *asked, *(("--engine-version", version) if version else ())))
    assert any("assumed" in each for each in found["assumptions"])
    sure = told(draftmark("fit", *asked, "--engine-version", "0.5.23"))["arms"][0]
    arm = found["arms"][0]
    if version in (None, "0.5.13"):
        assert width(arm) > width(sure)


def test_plan_refuses_what_does_not_fit_with_the_arithmetic(draftmark: Run, tmp_path: Path) -> None:
    """A driver that says H200 in its own words."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H200, 143771'\n")
    (tools / "nvidia-smi").chmod(0o755)
    shared = Path(__file__).resolve().parents[2].parent / "shared" / "captures" / "sglang-h200" / "model"
    if not shared.exists():
        pytest.skip("the captured model's config is not at ../shared")
    command = (
        f"cmd:python3 -m sglang.launch_server --model-path {shared} --mem-fraction-static 0.62 "
        "--disable-radix-cache --speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4"
    )
    done = draftmark("plan", command, "--depth", "off,3,10", "--json",
                     env={"PATH": f"{tools}:/usr/bin:/bin"})  # fmt: skip
    assert done.status == 0, done.err
    arms = {arm["arm"]: arm for arm in json.loads(done.out)["arms"]}
    assert arms["d10"]["verdict"] == "refused"
    assert "nothing is left for KV" in arms["d10"]["because"]
    assert arms["d10"]["fit"]["fits"] is False
    assert arms["d3"]["verdict"] == "start"
    assert arms["d3"]["fit"]["kv_tokens"] > 0


@pytest.mark.parametrize("seed", range(12))
def test_no_config_is_too_strange(draftmark: Run, tmp_path: Path, seed: int) -> None:
    """Refused or told, never a fault of ours."""
    rand = random.Random(seed)
    config = dict(rand.choice([LLAMA, NEXT]))
    for name in rand.sample(sorted(config), 3):
        config[name] = rand.choice([None, True, "x", -1, 0, 1.5, 10**30, [], {}, [1, "a"]])
    done = draftmark(
        "fit", str(model(tmp_path, config)), "--gpu", "h100", "--depth", "0", "--flags", FLAGS, "--json"
    )
    assert done.status in (0, 2)
    assert "draftmark itself failed" not in done.err


def test_a_command_line_longer_than_any_name(draftmark: Run, tmp_path: Path) -> None:
    """Told from a directory's name without asking the file system for one of 300 letters."""
    path = model(tmp_path, LLAMA)
    command = f"cmd:python3 -m sglang.launch_server --served-model-name {'x' * 300} --model-path {path}"
    found = told(draftmark("fit", command, "--gpu", "h200", "--depth", "off", "--json"))
    assert found["arms"][0]["fits"] is True


def test_without_a_method_off_is_told_unless_only_other_depths_are_named(draftmark: Run, tmp_path: Path) -> None:
    asked = ("fit", str(model(tmp_path, LLAMA)), "--gpu", "h200", "--engine", "sglang==0.5.17", "--json")
    found = told(draftmark(*asked))
    assert [arm["arm"] for arm in found["arms"]] == ["off"]
    assert any("only `off` is told" in each and "--method" in each for each in found["assumptions"])
    assert draftmark(*asked, "--depth", "1..4").status == 2
    assert len(told(draftmark(*asked, "--method", "NGRAM"))["arms"]) == 9


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("embedded:",), 30),
        (("MODEL", "--engine", "vllm"), 30),
        (("cmd:vllm serve model",), 2),
        (("url:http://127.0.0.1:1",), 2),
    ],
)
def test_other_engines(draftmark: Run, tmp_path: Path, words: tuple[str, ...], status: int) -> None:
    path = str(model(tmp_path, LLAMA))
    done = draftmark("fit", *(path if word == "MODEL" else word for word in words), "--gpu", "h200")
    assert (done.status, done.out) == (status, "")
    assert "next:" in done.err


def test_plan_takes_a_card_as_fit_does(draftmark: Run, tmp_path: Path) -> None:
    """On a computer without a driver; without a card it says what to give."""
    path = model(tmp_path, LLAMA)
    command = (
        f"cmd:python3 -m sglang.launch_server --model-path {path} --mem-fraction-static 0.8 "
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4"
    )
    env = {"PATH": "/usr/bin:/bin"}
    named = draftmark("plan", command, "--depth", "off,4", "--gpu", "h100", "--json", env=env)
    assert named.status == 0, named.err
    arms = {arm["arm"]: arm["fit"] for arm in json.loads(named.out)["arms"]}
    fitted = told(draftmark("fit", command, "--depth", "off,4", "--gpu", "h100", "--json", env=env))
    assert [arms[each["arm"]]["kv_tokens"] for each in fitted["arms"]] == [
        each["kv_tokens"] for each in fitted["arms"]
    ]
    bare = draftmark("plan", command, "--depth", "off,4", "--json", env=env)
    assert any("not predicted" in each and "--gpu h200" in each for each in json.loads(bare.out)["notes"])


def test_whose_limit_it_is(draftmark: Run, tmp_path: Path) -> None:
    path = str(model(tmp_path, LLAMA))
    asked = (
        "fit",
        path,
        "--gpu",
        "h200",
        "--engine",
        "sglang==0.5.17",
        "--method",
        "NGRAM",
        "--depth",
        "off,4",
        "--json",
    )
    own = told(draftmark(*asked))["arms"]
    assert [(arm["binding"], arm["max_running_requests"]) for arm in own] == [
        ("default-maximum", own[0]["max_running_requests"]), ("default-maximum", 48),
    ]  # fmt: skip
    given = told(draftmark(*asked, "--flags", "--max-running-requests 24"))["arms"]
    assert [(arm["binding"], arm["max_running_requests"]) for arm in given] == [("requested-maximum", 24)] * 2


def test_why_a_request_holds_so_many_slots(draftmark: Run, tmp_path: Path) -> None:
    path = str(model(tmp_path, NEXT))
    asked = ("fit", path, "--gpu", "h200", "--tp", "2", "--depth", "off", "--json")
    for version, flags, words in (
        ("0.5.14", "", "5 a request (radix cache with extra_buffer, the choice of SGLang 0.5.14)"),
        ("0.5.12", "", "3 a request (radix cache with no_buffer, the choice of SGLang 0.5.12)"),
        ("0.5.17", "--disable-radix-cache", "1 a request (no radix cache)"),
        (
            "0.5.17",
            "--mamba-radix-cache-strategy extra_buffer_lazy",
            "4 a request (radix cache with extra_buffer_lazy, as",
        ),
    ):
        found = told(
            draftmark(*asked, "--engine-version", version, "--flags", f"--mem-fraction-static 0.8 {flags}")
        )
        assert any(words in line for line in found["arms"][0]["because"]), version


def test_a_card_in_slices_is_not_taken_for_a_whole_one(draftmark: Run, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    driver = tools / "nvidia-smi"
    path = str(model(tmp_path, LLAMA))
    for said, status in (
        ("NVIDIA H200, 143771, Enabled", 2),
        ("NVIDIA H200, 143771, Disabled", 0),
        ("NVIDIA H200, 143771, [N/A]", 0),
    ):
        driver.write_text(f"#!/bin/sh\necho '{said}'\n")
        driver.chmod(0o755)
        done = draftmark("fit", path, "--depth", "off", env={"PATH": f"{tools}:/usr/bin:/bin"})
        assert done.status == status, said


@pytest.mark.parametrize(
    "words", [("--flags", "--page-size=64"), ("--flags=--page-size=64",), ("--flags", "--page-size 64")]
)
def test_flags_may_be_one_word(draftmark: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    path = str(model(tmp_path, LLAMA))
    arm = told(draftmark("fit", path, "--gpu", "h200", "--depth", "0", "--json", *words))["arms"][0]
    assert arm["kv_tokens"] % 64 == 0
    alone = draftmark("fit", path, "--gpu", "h200", "--depth", "0", "--json", "--flags", "--disable-radix-cache")
    assert alone.status == 0, alone.err


@pytest.mark.parametrize("name", ["/no/such/folder", "qwen3-next/", "config.json"])
def test_a_folder_that_is_not_there_is_told_as_that(draftmark: Run, name: str) -> None:
    done = draftmark("fit", name)
    assert done.status == 2
    assert f"there is no folder or file {name}" in done.err


def test_a_bare_name_may_have_been_a_folder(draftmark: Run) -> None:
    done = draftmark("fit", "qwen3-nxt")
    assert done.status == 2
    assert "no folder or file of that name is here either" in done.err
    assert "docker:" not in done.err
    assert "directory that holds config.json" in done.err


def test_the_engine_is_named_in_any_case(draftmark: Run, tmp_path: Path) -> None:
    path = str(model(tmp_path, LLAMA))
    found = told(draftmark("fit", path, "--gpu", "h200", "--depth", "0", "--json", "--engine", "SGLang==0.5.17"))
    assert found["version"] == "0.5.17"


def test_off_is_told_where_nothing_drafts_even_if_depths_are_asked_for(draftmark: Run, tmp_path: Path) -> None:
    path = str(model(tmp_path, LLAMA))
    found = told(draftmark("fit", path, "--gpu", "h200", "--depth", "0..10", "--json"))
    assert [arm["depth"] for arm in found["arms"]] == [0]
    assert any("only `off` is told" in each for each in found["assumptions"])
    assert draftmark("fit", path, "--gpu", "h200", "--depth", "1..10").status == 2


def test_a_method_that_the_flags_overrule_is_told(draftmark: Run, tmp_path: Path) -> None:
    path = str(model(tmp_path, NEXT))
    flags = f"{FLAGS} --speculative-algorithm NGRAM"
    words = ("--gpu", "h200", "--tp", "2", "--depth", "0,8", "--json", "--flags", flags)
    found = told(draftmark("fit", path, *words, "--method", "NEXTN"))
    assert "--method NEXTN is not used: the flags name NGRAM" in found["assumptions"]
    assert not any("--method" in each for each in told(draftmark("fit", path, *words))["assumptions"])


def test_the_table_of_requests_is_a_line_and_has_a_lever(draftmark: Run, tmp_path: Path) -> None:
    """2,049 rows of ten million tokens, 4 bytes each: 80 GiB, for which no --mem-fraction-static makes room."""
    path = str(model(tmp_path, {**LLAMA, "max_position_embeddings": 10_485_760}))
    words = ("--gpu", "h200", "--engine", "sglang==0.5.17", "--depth", "0", "--json", "--flags")
    arm = told(draftmark("fit", path, *words, "--mem-fraction-static 0.8"))["arms"][0]
    assert arm["fits"] is False
    assert any("the table from requests to tokens takes " in line for line in arm["because"])
    lever = next(line for line in arm["to_get_more"] if line.startswith("--context-length "))
    context = lever.split()[1].rstrip(":")
    again = told(draftmark("fit", path, *words, f"--mem-fraction-static 0.8 --context-length {context}"))["arms"][0]
    assert again["fits"] is True
    assert f"{again['kv_tokens']:,} tokens" in lever
    small = told(
        draftmark(
            "fit",
            str(model(tmp_path, {**LLAMA, "max_position_embeddings": 8192}, "small")),
            *words,
            "--mem-fraction-static 0.8",
        )
    )
    assert not any("table from requests" in line for line in small["arms"][0]["because"])


@pytest.mark.parametrize("flag", ["--quantization", "--load-format", "--attention-backend"])
def test_values_that_this_version_does_not_take_are_refused(draftmark: Run, tmp_path: Path, flag: str) -> None:
    path = str(model(tmp_path, LLAMA))
    words = ("--gpu", "h200", "--depth", "0", "--flags", f"{flag} nonsense")
    done = draftmark("fit", path, "--engine-version", "0.5.17", *words)
    assert done.status == 2
    assert f"{flag} nonsense: SGLang 0.5.17 has no such choice" in done.err
    assert draftmark("fit", path, "--engine-version", "0.5.18", *words).status == 0  # not read: it may have it


def test_the_less_is_known_of_a_version_the_wider_the_bounds(draftmark: Run, tmp_path: Path) -> None:
    path = str(model(tmp_path, LLAMA))
    widths = [
        width(told(draftmark("fit", path, "--gpu", "h200", "--depth", "0", "--json", *version))["arms"][0])
        for version in (
            ("--engine-version", "0.5.17"),
            ("--engine-version", "0.6.0"),
            ("--engine-version", "main"),
            (),
        )
    ]
    assert widths[0] < widths[1] == widths[2] == widths[3]


def test_plan_refuses_what_the_model_s_files_do_not_allow(draftmark: Run, tmp_path: Path) -> None:
    """DSPARK without a draft: fit says no, and the plan starts none of its depths but the service's own."""
    line = "--speculative-algorithm DSPARK --speculative-dspark-block-size 8 --mem-fraction-static 0.8"
    command = f"cmd:python3 -m sglang.launch_server --model-path {model(tmp_path, LLAMA)} {line}"
    words = ("--engine", "sglang==0.5.17", "--gpu", "h200", "--depth", "off,1,8", "--json")
    fits = {arm["arm"]: arm["fits"] for arm in told(draftmark("fit", command, *words))["arms"]}
    done = draftmark("plan", command, *words)
    assert done.status == 0, done.err
    verdicts = {arm["arm"]: arm["verdict"] for arm in json.loads(done.out)["arms"]}
    assert fits == {"off": True, "d1": False, "d8": False}
    assert verdicts == {"off": "start", "d1": "refused", "d8": "start"}
