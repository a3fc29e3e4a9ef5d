"""llama-server's flags, log lines and HTTP: the contract suite, and what is particular to it."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.llamacpp import flags
from draftmark.engines.llamacpp.engine import LlamaCpp
from draftmark.errors import BadInputError, UsageError
from draftmark.model import Arm
from draftmark.testing.engine_contract import EngineContract

PLAIN = ("llama-server", "-m", "model.gguf", "--port", "8090", "-c", "4096")
NGRAM = (
    *PLAIN,
    "--spec-type",
    "ngram-simple",
    "--spec-ngram-simple-size-n",
    "3",
    "--spec-ngram-simple-size-m",
    "6",
)
DRAFT = (
    "numactl",
    "-N0",
    "/opt/bin/llama-server",
    "-m",
    "big.gguf",
    "-md",
    "small.gguf",
    "--spec-draft-n-max",
    "5",
)


class TestContract(EngineContract):
    commands = (
        (PLAIN, 0),
        (NGRAM, 6),
        (DRAFT, 5),
        ((*PLAIN, "-md", "small.gguf"), 3),
        ((*PLAIN, "--spec-type", "none", "-md", "small.gguf"), 0),
        (("python3", "/usr/lib/python3/draftmark/embedded/launcher.py", "-m", "m.gguf", "--api-key", "k1,k2"), 0),
    )
    strangers = (("sglang", "serve"), ("python3", "-m", "vllm.entrypoints.openai.api_server"), ("launcher.py",), ())
    live_depths = (3, 4, 16)
    failures = (
        (
            ["error: invalid argument: --modell"],
            "invalid argument: --modell",
        ),
        (
            [
                "0.00.008.205 W srv  llama_server: -----------------",
                "0.00.008.392 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1",
                "0.00.008.546 E srv  llama_server: exiting due to HTTP server error",
            ],
            "couldn't bind HTTP server socket",
        ),
        (
            [
                "0.00.009.513 E gguf_init_from_reader: invalid magic characters: 'nota', expected 'GGUF'",
                "0.00.009.659 E llama_model_load: error loading model: failed to load model from bad.gguf",
            ],
            "invalid magic characters",
        ),
        (
            [
                "0.00.239.656 E ggml_aligned_malloc: insufficient memory (attempted to allocate 1440.00 MB)",
                "0.00.239.841 E llama_init_from_model: failed to initialize the context: failed to allocate buffer",
            ],
            "insufficient memory",
        ),
    )

    @pytest.fixture
    def engine(self) -> LlamaCpp:
        return LlamaCpp()


CAPTURES = Path(__file__).parents[3] / "shared" / "captures" / "llama-server"


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures lie beside the checkout, in ../shared")
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("bad-arg", "invalid argument: --modell"),
        ("removed-arg-draft-max", "the argument has been removed"),
        ("bad-spec-type", "unknown speculative type: medusa"),
        ("missing-model", "No such file or directory"),
        ("not-a-gguf", "invalid magic characters"),
        ("truncated-gguf", "data is not within the file bounds"),
        ("missing-draft", "failed to open GGUF file"),
        ("port-in-use", "couldn't bind HTTP server socket"),
        ("ulimit-oom", "insufficient memory"),
        ("ctx-too-large", "insufficient memory"),
    ],
)
def test_real_failed_starts(name: str, part: str) -> None:
    lines = (CAPTURES / f"{name}.stderr").read_text(errors="replace").splitlines()
    found = LlamaCpp().decisive(lines, name)
    assert found is not None
    assert part in found.text


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures lie beside the checkout, in ../shared")
def test_a_normal_start_lost_no_speculation() -> None:
    lines = (CAPTURES / "normal-draft.stderr").read_text(errors="replace").splitlines()
    assert LlamaCpp().speculation_lost(lines, "x") is None


def test_lost_speculation_is_seen() -> None:
    lines = [
        "0.01.000.000 I ok",
        "0.01.000.001 E srv  load_model: failed to initialize speculative decoding context: x",
    ]
    found = LlamaCpp().speculation_lost(lines, "server.log")
    assert found is not None
    assert found.line == 2


def test_off_takes_the_draft_model_out() -> None:
    # With `--spec-type none` alone the server still loads it.
    assert "small.gguf" not in LlamaCpp().with_arm(DRAFT, Arm(0))


def test_only_the_depth_changes_where_a_method_is_set() -> None:
    changed = LlamaCpp().with_arm(NGRAM, Arm(12))
    assert set(changed) ^ set(NGRAM) == {"6", "12"}


def test_a_method_is_brought_where_there_is_none() -> None:
    engine = LlamaCpp()
    assert engine.with_arm(PLAIN, Arm(8))[-6:] == (
        "--spec-type",
        "ngram-simple",
        "--spec-ngram-simple-size-n",
        "3",
        "--spec-ngram-simple-size-m",
        "8",
    )
    other = LlamaCpp(method="ngram-map-k").with_arm(PLAIN, Arm(8))
    assert flags.method_of(other) == "ngram-map-k"
    with pytest.raises(UsageError, match="no drafting method"):
        LlamaCpp(method="medusa").with_arm(PLAIN, Arm(8))


@pytest.mark.parametrize(
    ("command", "depth", "refused"),
    [
        (NGRAM, 2, True),
        (NGRAM, 3, False),
        (PLAIN, 1, True),
        ((*PLAIN, "--spec-type", "ngram-simple"), 8, True),  # its own lookup n-gram is 12 long
        ((*PLAIN, "--spec-type", "ngram-simple"), 12, False),
        ((*PLAIN, "--spec-type", "ngram-mod"), 16, True),
        ((*PLAIN, "--spec-default"), 64, False),
        (DRAFT, 1, False),
        (DRAFT, 0, False),
    ],
)
def test_dead_depths_are_refused(command: tuple[str, ...], depth: int, refused: bool) -> None:
    refusal = LlamaCpp().refuse(command, Arm(depth))
    assert (refusal is not None) is refused
    if refusal:
        assert refusal.code == "dead-depth"
        assert f"depth {depth} drafts nothing" in refusal.because


@pytest.mark.parametrize("methods", ["ngram-simple,draft-mtp", "ngram-cache", "medusa"])
def test_a_method_without_one_depth_is_refused(methods: str) -> None:
    with pytest.raises(UsageError):
        LlamaCpp().depth((*PLAIN, "--spec-type", methods))


WORDS = st.text(string.ascii_letters + string.digits + "/._-", min_size=1, max_size=12).filter(
    lambda word: not flags._speculation().canonical(word)
)


@given(st.lists(WORDS, max_size=12), st.integers(3, 64), st.data())
def test_rewriting_changes_only_the_arms_flags(words: list[str], depth: int, data: st.DataObject) -> None:
    own = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "7"]
    at = data.draw(st.integers(0, len(words)))
    command = ("llama-server", *words[:at], *own, *words[at:])
    changed = flags.with_arm(command, Arm(depth))
    rest, spec = flags._speculation().split(changed)
    assert rest == ("llama-server", *words)
    assert spec["--spec-ngram-simple-size-m"] == str(depth)
    assert flags._speculation().split(flags.with_arm(command, Arm(0)))[0] == ("llama-server", *words)


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ((), "http://127.0.0.1:8080"),
        (("--host", "0.0.0.0", "--port", "1"), "http://127.0.0.1:1"),
        (("--host", "::1", "--port", "9"), "http://[::1]:9"),
        (("--host", "gpu1", "--api-prefix", "/llm/"), "http://gpu1:8080/llm"),
        (("--host", "[::1]", "--port", "08090"), "http://[::1]:8090"),
        (("--host", "::"), "http://[::1]:8080"),
        (("--host", "my_box.lan."), "http://my_box.lan.:8080"),
        (("--host", "bücher.example"), "http://xn--bcher-kva.example:8080"),
        (("--api-prefix", "/größe 1?#%"), "http://127.0.0.1:8080/gr%C3%B6%C3%9Fe%201%3F%23%25"),
        (("--api-prefix", "/\udcff"), "http://127.0.0.1:8080/%FF"),
        (("--api-prefix", "/"), "http://127.0.0.1:8080"),
    ],
)
def test_where_it_listens(words: tuple[str, ...], url: str) -> None:
    assert LlamaCpp().base_url(("llama-server", *words)) == url


@pytest.mark.parametrize(
    "port", ["http", "²", "٣", "99999", "65536", "0", "-1", "+1", "1_0", " 1", "", "8080\n", "9" * 5000]
)
def test_a_port_that_is_none(port: str) -> None:
    with pytest.raises(UsageError, match="not a port number") as caught:
        LlamaCpp().base_url(("llama-server", "--port", port))
    assert "--port" in caught.value.evidence[0]
    assert caught.value.next_step


@pytest.mark.parametrize(
    "host",
    [
        "[::1",
        "::1]",
        "[",
        "[]",
        ":::",
        "host:80",
        "a..b",
        ".a",
        "a" * 64,
        ".".join(["a" * 60] * 5),
        "a b",
        "a/b",
        "u@h",
        "-",
        "",
        "\udcff",
        "/run/llama.sock",
    ],
)
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(UsageError, match="cannot be reached over TCP") as caught:
        LlamaCpp().base_url(("llama-server", "--host", host))
    assert "--host" in caught.value.evidence[0]
    assert caught.value.next_step


def test_what_the_environment_says_is_named_as_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "²")
    with pytest.raises(UsageError) as caught:
        LlamaCpp().base_url(("llama-server",))
    assert caught.value.evidence[0].startswith("LLAMA_ARG_PORT=")


def test_a_prefix_that_would_run_into_the_port() -> None:
    with pytest.raises(UsageError, match="does not begin with /"):
        LlamaCpp().base_url(("llama-server", "--api-prefix", "llm"))


@pytest.mark.parametrize("key", ["sécret", "a\nb", "a\tb", "a\0", " lead", "trail ", "\udcff", "→"])
def test_a_key_that_no_header_can_carry(key: str) -> None:
    with pytest.raises(UsageError, match="cannot be sent in an HTTP header") as caught:
        LlamaCpp().headers((*PLAIN, "--api-key", key))
    assert key not in str(caught.value)
    assert "--api-key" in caught.value.evidence[0]


def test_api_key_becomes_a_header() -> None:
    engine = LlamaCpp()
    assert engine.headers((*PLAIN, "--api-key", "k1,k2")) == {"Authorization": "Bearer k1"}
    assert engine.headers((*PLAIN, "--api-key", ",two words")) == {"Authorization": "Bearer two words"}
    assert engine.headers((*PLAIN, "--api-key", "")) == {}
    assert "k1" not in str(engine.summary((*PLAIN, "--api-key", "k1,k2")))


@pytest.mark.parametrize(
    ("words", "bound"),
    [((), None), (("-ngl", "0"), True), (("-ngl", "99"), False), (("--gpu-layers", "auto"), None)],
)
def test_what_computes(words: tuple[str, ...], bound: bool | None) -> None:
    assert LlamaCpp().cpu_bound(("llama-server", *words)) is bound
    assert LlamaCpp().gpus(("llama-server", *words)) == (0 if bound else None)
    assert LlamaCpp().cpu_bound(("python3", "/x/embedded/launcher.py", *words[:0])) is True


def test_check_reads_the_models_first_bytes(tmp_path: Path) -> None:
    engine, model = LlamaCpp(), tmp_path / "m.gguf"
    with pytest.raises(BadInputError, match="cannot read the model"):
        engine.check(("llama-server", "-m", str(model)))
    model.write_bytes(b"nota gguf")
    with pytest.raises(BadInputError, match="is not a GGUF file"):
        engine.check(("llama-server", "-m", str(model)))
    model.write_bytes(b"GGUF\x03")
    engine.check(("llama-server", "-m", str(model)))
    with pytest.raises(BadInputError):
        engine.check(("llama-server", "-m", str(model), "-md", str(tmp_path / "none.gguf")))


def test_removed_flags_are_named_with_their_successor() -> None:
    with pytest.raises(UsageError) as caught:
        LlamaCpp().check((*PLAIN, "--draft-max", "8"))
    assert "--spec-draft-n-max" in caught.value.next_step


def test_hazards() -> None:
    engine = LlamaCpp()
    assert [h["what"][:8] for h in engine.hazards(PLAIN)] == ["/metrics"]
    assert engine.hazards((*NGRAM, "--metrics")) == []
    dead = (*PLAIN, "--metrics", "--no-slots", "--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "4")
    assert len(engine.hazards(dead)) == 2
