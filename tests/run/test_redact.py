"""Secrets by name and by value. What stays shown matters as much: a report without flags says nothing."""

from __future__ import annotations

import json
import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.run.redact import HIDDEN, Redactor, command, environment, text

KEY = "sk-Zz9-topsecret"

SECRET_NAMES = [
    *("MY_TOKEN", "GITLAB_TOKEN", "VAULT_TOKEN", "SLACK_BOT_TOKEN", "AWS_SESSION_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    *(
        "MAX_TOKEN_SECRET",
        "PRIVATE_KEY",
        "OPENAI_KEY",
        "PASS",
        "PGPASS",
        "AUTH",
        "HF_TOKEN",
        "TOKEN",
        "GITHUB_TOKEN_2",
    ),
    *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "MYSQL_PWD", "PGPASSWORD", "CLIENT_SECRET_ID"),
    *("API_KEYS", "VLLM_API_KEY", "openaiApiKey", "HFToken", "GITHUB_PAT", "GOOGLE_CREDENTIALS", "API_TOKENS"),
]
SECRET_FLAGS = [
    *(
        "--api-key",
        "--api-keys",
        "--hf-token",
        "-hft",
        "--token",
        "--auth-token",
        "--password",
        "--ssl-keyfile-password",
    ),
    *("--admin-api-key", "--secret", "--authkey", "--private-key", "--api_key", "--apikey"),
]
SHOWN_FLAGS = [
    *(
        "--max-num-batched-tokens",
        "--speculative-num-draft-tokens",
        "--max-tokens",
        "--tokenizer",
        "--tokenizer-path",
    ),
    *(
        "--max-total-tokens",
        "--api-key-file",
        "--ssl-key-file",
        "--ssl-keyfile",
        "--chunked-prefill-size",
        "--keyboard",
    ),
    *(
        "--tokenizer-mode",
        "--skip-tokenizer-init",
        "--num-key-value-heads",
        "--bos-token",
        "--token-file",
        "--n-predict",
    ),
    *("--public-key", "--tokens-per-second", "--token-limit", "--max-new-tokens", "--enable-auth", "--no-api-key"),
]
SHOWN_NAMES = [
    *("NOPASSWD", "nopassword"),
    *("KEEP_ALIVE", "MONKEY", "TOKENIZERS_PARALLELISM", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "PATH", "MAX_TOKENS"),
    *("XAUTHORITY", "HF_TOKEN_PATH", "PGPASSFILE", "COMPASS", "AUTHOR", "KEYBOARD", "CUDA_VISIBLE_DEVICES"),
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_names(name: str) -> None:
    assert environment({name: KEY}) == {name: HIDDEN}
    assert command([f"{name}={KEY}", "serve"]) == (f"{name}=***", "serve")
    assert command(["docker", "run", "-e", f"{name}={KEY}"])[-1] == f"{name}=***"
    assert command([f"--env={name}={KEY}"]) == (f"--env={name}=***",)


@pytest.mark.parametrize("name", SHOWN_NAMES)
def test_names_that_only_look_secret(name: str) -> None:
    assert environment({name: "value"}) == {name: "value"}
    assert command([f"{name}=value", "serve"]) == (f"{name}=value", "serve")
    assert Redactor.of([f"{name}=value"], {name: "value"}).values == ()


@pytest.mark.parametrize("flag", SECRET_FLAGS)
def test_secret_flags(flag: str) -> None:
    assert command(["x", flag, KEY, "-c", "4"]) == ("x", flag, HIDDEN, "-c", "4")
    assert command(["x", f"{flag}={KEY}", "-c"]) == ("x", f"{flag}=***", "-c")
    assert command(["x", f"{flag}=", KEY, "-c"]) == ("x", f"{flag}=", HIDDEN, "-c")
    assert command(["bash", "-c", f"x {flag} {KEY} -c 4"]) == ("bash", "-c", f"x {flag} *** -c 4")
    assert command(["bash", "-c", f"x {flag} '{KEY} b' -c 4"]) == ("bash", "-c", f"x {flag} '***' -c 4")
    assert KEY not in text(f"argv: {json.dumps(['x', flag, KEY])} and {['x', flag, KEY]}")


@pytest.mark.parametrize("flag", SHOWN_FLAGS)
def test_flags_that_only_look_secret(flag: str) -> None:
    for words in (("x", flag, "value", "-c"), ("x", f"{flag}=value"), ("bash", "-c", f"x {flag} value")):
        assert command(words) == words
        assert Redactor.of(words, {}).values == ()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-H", "Authorization: Basic zz"], ["-H", "Authorization: Basic ***"]),
        (["Authorization: Basic zz"], ["Authorization: Basic ***"]),
        (["Authorization: zz"], ["Authorization: ***"]),
        (["Authorization:Bearer zz"], ["Authorization:Bearer ***"]),
        (["--header", "X-Api-Key: zz"], ["--header", "X-Api-Key: ***"]),
        (["X-Api-Key: zz"], ["X-Api-Key: ***"]),
        (["X-Api-Key: z z"], ["X-Api-Key: ***"]),
        (["--header=X-Api-Key: zz"], ["--header=X-Api-Key: ***"]),
        (["-HX-Api-Key: zz"], ["-HX-Api-Key: ***"]),
        (["-H", "Token: zz"], ["-H", "Token: ***"]),
        (["-H", "Cookie: a=b; c=d"], ["-H", "Cookie: ***"]),
        (["-H", "Authorization:", "Bearer", "zz", "-c"], ["-H", "Authorization:", "Bearer", "***", "-c"]),
        (["-H", "Authorization: Bearer", "zz", "-c"], ["-H", "Authorization: Bearer", "***", "-c"]),
        (["-H", "Accept: text/html"], ["-H", "Accept: text/html"]),
        (["https://tok@h/"], ["https://***@h/"]),
        (["https://u:p@h/"], ["https://***@h/"]),
        (["https://u:p@ss@h/"], ["https://***@h/"]),
        (["https://u:p/ss@h/"], ["https://***@h/"]),
        (["--db=pg://u:p@h/x"], ["--db=pg://***@h/x"]),
        (["http://127.0.0.1:8080/a@b"], ["http://127.0.0.1:8080/a@b"]),
        (["http://[::1]:8080/a@b"], ["http://[::1]:8080/a@b"]),
        (["http://h/?token=zz&api_key=yy&q=1"], ["http://h/?token=***&api_key=***&q=1"]),
        (["--u=http://h/?q=1&key=zz#x"], ["--u=http://h/?q=1&key=***#x"]),
        (['{"api_key":"zz"}'], ['{"api_key":"***"}']),
        (['{"a": {"api_key": "z\\"z", "n": 4}}'], ['{"a": {"api_key": "***", "n": 4}}']),
        (['{"token": 1234, "max_tokens": 5}'], ['{"token": ***, "max_tokens": 5}']),
        (['{"api_keys": ["a", "b"]}'], ['{"api_keys": [***]}']),
        (["{'password': 'zz'}"], ["{'password': '***'}"]),
        (['"{\\"api_key\\":\\"zz\\"}"'], ['"{\\"api_key\\":\\"***\\"}"']),
        (["bash", "-c", "x --api-key zz"], ["bash", "-c", "x --api-key ***"]),
        (["bash", "-c", "exec A_TOKEN=zz x --b"], ["bash", "-c", "exec A_TOKEN=*** x --b"]),
        (["bash", "-c", "curl -H 'X-Api-Key: zz' -v"], ["bash", "-c", "curl -H 'X-Api-Key: ***' -v"]),
        (
            ["bash", "-c", 'curl -H "Authorization: Basic zz" u'],
            ["bash", "-c", 'curl -H "Authorization: Basic ***" u'],
        ),
        (["--api-key=zz"], ["--api-key=***"]),
        (["--api-key=", "zz"], ["--api-key=", "***"]),
        (["--api-key", ""], ["--api-key", ""]),
        (["--api-key"], ["--api-key"]),
        (["MONKEY=zz", "KEEP_ALIVE=5"], ["MONKEY=zz", "KEEP_ALIVE=5"]),
    ],
)
def test_words(words: list[str], shown: list[str]) -> None:
    assert command(words) == tuple(shown)
    assert command(shown) == tuple(shown)


@pytest.mark.parametrize(
    "line",
    [
        "print_info: EOS token        = 151645 '<|im_end|>'",
        "eval time = 3.5 ms / 128 tokens ( 0.03 ms per token, 36571.43 tokens per second)",
        "tokenizer.ggml.bos_token_id u32 = 1",
        '{"tokenizer.ggml.add_bos_token": true, "eos_token_id": 2}',
        "srv  main: the key: 3, tokens: 4, http://127.0.0.1:8080/props?model=a",
        "main: basic auth is off, author: me",
        "Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: 0.01, #pending-token: 7",
    ],
)
def test_log_lines_that_hold_no_secret(line: str) -> None:
    assert text(line) == line
    assert Redactor.of(["x", "--api-key", KEY], {}).text(line) == line


@pytest.mark.parametrize(
    ("words", "env", "extra"),
    [
        (["x", "--api-key", KEY], {}, ()),
        (["x", f"--api-key={KEY}"], {}, ()),
        (["x", "--api-key", f"other-key-1,{KEY}"], {}, ()),
        (["x", "--api-key", f"other-key-1, {KEY} ,b"], {}, ()),
        (["x", "-H", f"Authorization: Bearer {KEY}"], {}, ()),
        (["x", f"http://user:{KEY}@h/"], {}, ()),
        (["x", f"http://h/?token={KEY}"], {}, ()),
        (["x", f'{{"api_key": "{KEY}"}}'], {}, ()),
        (["x", f'{{"api_keys": ["a", "{KEY}"]}}'], {}, ()),
        (["bash", "-c", f"x --api-key '{KEY}'"], {}, ()),
        (["bash", "-c", f"A_TOKEN={KEY} x --port 1"], {}, ()),
        (["x", "-H", "Authorization: Basic dXNlcjpzay1aejktdG9wc2VjcmV0"], {}, ()),
        (["x"], {"OPENAI_KEY": KEY}, ()),
        (["x"], {"DB": f"pg://u:{KEY}@h"}, ()),
        (["x"], {"PRIVATE_KEY": f"-----BEGIN-----\n{KEY}\n-----END-----"}, ()),
        (["x"], {}, (KEY,)),
        (["x"], {}, (f"Bearer {KEY}",)),
    ],
)
def test_a_value_is_hidden_where_no_name_stands(
    words: list[str], env: dict[str, str], extra: tuple[str, ...]
) -> None:
    redactor = Redactor.of(words, env, extra)
    assert redactor.text(f"invalid key '{KEY}', x{KEY}x") == "invalid key '***', x***x"
    assert redactor.bytes(f"\u00e9 {KEY}\n".encode() + b"\xff\xfe") == "\u00e9 ***\n".encode() + b"\xff\xfe"
    assert redactor.command(["echo", KEY]) == ("echo", HIDDEN)
    assert redactor.environment({"A": f"a{KEY}"}) == {"A": "a***"}
    assert KEY not in repr(redactor)


def test_a_value_is_hidden_as_it_is_escaped() -> None:
    key = "p\u00e4ss/w\"o'rd&+ x\\"
    redactor = Redactor.of(["x", "--password", key], {})
    written = (
        key,
        json.dumps(key),
        repr(key),
        repr(key.encode()),
        shlex.quote(key),
        "p%C3%A4ss%2Fw%22o%27rd%26%2B%20x%5C",
    )
    for form in written:
        assert "ss" not in redactor.text(f"a {form} b"), form


def test_short_and_trivial_values_stay_elsewhere() -> None:
    redactor = Redactor.of(
        ["x", "--api-key", "abc", "--token", "none", "--api-key=", "--port"], {"MY_TOKEN": "****"}
    )
    line = "abc none --port **** x"
    assert redactor.text(line) == line
    assert redactor.command(["x", "--api-key", "abc"]) == ("x", "--api-key", HIDDEN)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("add `lab ALL=(root) NOPASSWD: ALL` by `visudo`", "add `lab ALL=(root) NOPASSWD: ALL` by `visudo`"),
        ("run `x PASSWORD=zz9` or `y`, then", "run `x PASSWORD=***` or `y`, then"),
        ("`PASSWORD=zz9`, or", "`PASSWORD=***`, or"),
        ("set 'PASSWORD=zz9 zz9' or run 'y z'", "set 'PASSWORD=***' or run 'y z'"),
        ('set "DBPASSWD=zz9" or "y"', 'set "DBPASSWD=***" or "y"'),
        ("PASSWORD=zz`9", "PASSWORD=***"),
        ("NOPASSWD: PASSWD: zz9", "NOPASSWD: PASSWD: ***"),
    ],
)  # fmt: skip
def test_a_quote_around_a_name_and_its_value_is_closed(line: str, shown: str) -> None:
    assert text(line) == shown


def test_overlapping_values_leave_no_rest() -> None:
    redactor = Redactor.of([], {}, ["abcdef", "defghi", "a***b"])
    assert redactor.text("abcdefghi") == HIDDEN
    assert redactor.text("aabcdefb") == HIDDEN  # the hiding itself made a third value


SECRETS = st.text(st.characters(codec="utf-8"), min_size=4, max_size=24)
ANY = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ["--api-key ", "Authorization: Basic ", "https://", '{"token": "', "?key=", "x='", " \\", "***", "@h/"]
)


@given(SECRETS, ANY, ANY, st.booleans())
def test_a_random_value_is_gone_wherever_it_stands(secret: str, before: str, after: str, as_extra: bool) -> None:
    if as_extra:
        redactor = Redactor.of([], {}, [secret])
    else:
        redactor = Redactor.of(["x", "--api-key", f"k{secret}"], {})
        secret = f"k{secret}"
    if secret.strip("*") and secret.lower() not in (
        "true",
        "false",
        "none",
        "null",
        "basic",
        "bearer",
        "token",
        "digest",
    ):
        whole = before + secret + after
        assert secret not in redactor.text(whole)
        assert secret.encode() not in redactor.bytes(whole.encode())
        assert all(secret not in word for word in redactor.command([before, whole, after]))


@given(st.lists(ANY, max_size=6).map("".join), st.lists(ANY, max_size=5))
def test_hiding_twice_changes_nothing_and_words_stay_words(line: str, words: list[str]) -> None:
    assert len(command(words)) == len(words)
    assert text(text(line)).count("\n") <= line.count("\n")
    assert Redactor.of([], {}).command(words) == command(words)


@pytest.mark.parametrize(
    "unit", ["a", "://u:x", "--a ", "token=", '"', "\\", "authorization: ", "bearer ", "[", "'"]
)
def test_long_lines_take_no_long_time(unit: str) -> None:
    began = time.monotonic()
    text(unit * (20_000 // len(unit)))
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(
    "line", [f"#access_token={KEY}", f"see http://h/#access_token={KEY}", f"#api-token: {KEY}"]
)
def test_a_sign_before_a_name_does_not_show_a_secret(line: str) -> None:
    assert KEY not in text(line)
