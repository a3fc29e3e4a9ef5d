"""Service references and the command lines in them."""

from __future__ import annotations

import contextlib
import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from draftmark.errors import UsageError
from draftmark.model import ServiceKind, ServiceRef
from draftmark.service.reference import parse_cmd, parse_reference, split_command

words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), min_size=1, max_size=6
)


def at_home(text: str) -> str:
    return text.replace("~", "/home/me my", 1)


@pytest.mark.parametrize(
    ("text", "kind", "target"),
    [
        ("unit:sglang-qwen.service", ServiceKind.UNIT, "sglang-qwen.service"),
        ("unit:vllm@0", ServiceKind.UNIT, "vllm@0"),
        ("cmd:llama-server -m x.gguf", ServiceKind.CMD, "llama-server -m x.gguf"),
        ('cmd:"llama-server -m x.gguf"', ServiceKind.CMD, "llama-server -m x.gguf"),
        (r'cmd:"llama-server -m \"a b.gguf\""', ServiceKind.CMD, 'llama-server -m "a b.gguf"'),
        ('cmd:"/opt/my app/x" "a b"', ServiceKind.CMD, '"/opt/my app/x" "a b"'),
        ("cmd:A=1 serve", ServiceKind.CMD, "A=1 serve"),
        ("docker:vllm", ServiceKind.DOCKER, "vllm"),
        ("url:http://127.0.0.1:8080/", ServiceKind.URL, "http://127.0.0.1:8080"),
        ("url:https://[::1]:8080", ServiceKind.URL, "https://[::1]:8080"),
        ("url:http://[fe80::1%eth0]:80/v1/", ServiceKind.URL, "http://[fe80::1%eth0]:80/v1"),
        ("url:http://gpu_1.lan.:80", ServiceKind.URL, "http://gpu_1.lan.:80"),
        ("url:http://b\u00fccher.example/", ServiceKind.URL, "http://xn--bcher-kva.example"),
        ("url:http://h/\u00e4/%20?q=\u00df", ServiceKind.URL, "http://h/%C3%A4/%20?q=%C3%9F"),
        ("url:http://h/a@b", ServiceKind.URL, "http://h/a@b"),
        ("embedded:", ServiceKind.EMBEDDED, ""),
        ("  embedded:  ", ServiceKind.EMBEDDED, ""),
    ],
)
def test_forms(text: str, kind: ServiceKind, target: str) -> None:
    reference = parse_reference(text)
    assert reference == ServiceRef(kind, target)
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize("text", ["unit:llm sp.service", "unit:../llm.service", "docker:a b", "unit:", "x", ""])
def test_no_form_is_named_twice(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    step = caught.value.next_step
    assert [step.count(form) for form in ("unit:NAME", "docker:NAME", "cmd:")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "unit:NAME"),
        ("llama-server", "cmd:"),
        ("Unit:x", "unit:"),
        ("dokcer:x", "did you mean docker:"),
        ("command:x", "did you mean cmd:"),
        ("http://127.0.0.1:8080", "url:http://127.0.0.1:8080"),
        ("unit:", "names nothing"),
        ("unit:a b", "no blank"),
        ("unit:/etc/systemd/system/x.service", "no slash"),
        ("docker: ", "names nothing"),
        ("cmd:", "names nothing"),
        ('cmd:""', "no program"),
        ("cmd:A=1", "no program"),
        ("cmd:serve 'x", "not balanced"),
        ('cmd:"serve', "not balanced"),
        ("cmd:serve \\", "not balanced"),
        ("cmd:a | b", "`|`"),
        ("url:127.0.0.1:8080", "http://"),
        ("url:ftp://x", "http://"),
        ("url:http://", "host"),
        ("url:http://:8080", "host"),
        ("url:http://x:99999", "not a URL"),
        ("url:http://x:y", "not a URL"),
        ("url:http://[::1", "not a URL"),
        ("url:http://a b", "http://"),
        ("url:http://a..b", "an empty label"),
        ("url:http://.a", "an empty label"),
        ("url:http://\u00fc..b/", "an empty label"),
        (f"url:http://{'a' * 64}.b", "over 63"),
        ("url:http://" + "\u00fc" * 63 + ".b", "over 63"),
        ("url:http://\ue000.b", "cannot be a host name"),
        ("url:http://a%b", "cannot be a host name"),
        ("url:http://a<b", "cannot be a host name"),
        ("url:http://[::1]x", "not a URL"),
        ("url:http://[::g]", "not a URL"),
        ("url:http://h/\ud800", "not a URL"),
        ("url:http://::1]", "not a URL"),
        ("url:http://[127.0.0.1]", "not a URL"),
        ("url:http://1:2:3", "not a URL"),
        ("url:http://h/\x01", "http://"),
        ("embedded:x", "no name"),
    ],
)
def test_refused_forms(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert told in str(caught.value)
    assert caught.value.evidence[0] in text
    assert caught.value.next_step


@pytest.mark.parametrize("scheme", ["url:http", "url:https", "https", "Url:http", "url:ftp"])
@pytest.mark.parametrize(
    "rest",
    [
        "hunter2@h/",
        "u:hunter2@h:80/v1",
        "u:x@hunter2@h",
        "u:hunter2/x@h",
        "u:x/hunter2@h",
        "hunter2:@[::1",
        ":hunter2@h:y",
    ],
)
def test_passwords_in_urls_are_refused_and_not_shown(scheme: str, rest: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(f"{scheme}://{rest}")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    if scheme.startswith("url:"):
        assert "--header 'Authorization: Bearer" in caught.value.next_step


@given(st.text(alphabet="ab\u00fc\u0378./:@[]%?#1\ud800", max_size=14))
def test_a_url_is_ascii_or_refused(rest: str) -> None:
    with contextlib.suppress(UsageError):
        target = parse_reference(f"url:http://{rest}").target
        assert target.isascii()
        assert parse_reference(f"url:{target}").target == target


@given(words)
@example(["~", "|", "$x", "`", "a\\\nb", "\n", ""])
def test_what_shlex_joins_is_split_again(argv: list[str]) -> None:
    assert split_command(shlex.join(argv)) == tuple(argv)


@settings(deadline=None)
@given(st.text(alphabet="ab '\"\\\n|&;<>()$`~=/#*{", max_size=14))
def test_splits_as_shlex_does_or_refuses(text: str) -> None:
    """Nothing is reinterpreted: without `~` and shell-only escapes the words are shlex's own."""
    with contextlib.suppress(UsageError):
        got = split_command(text, expand=lambda tilde: tilde)
        if not any(escape in text for escape in ("\\\n", "\\$", "\\`")):
            assert list(got) == shlex.split(text)


@given(st.text(alphabet="ab '\"\\~=/#{:,.", max_size=14))
def test_splits_as_a_shell_does(text: str) -> None:
    """Where no shell is needed the words are those that a shell would pass."""
    try:
        got = split_command(text)
    except UsageError:
        return
    script = 'eval "set -- $1"; for word; do printf "%s\\0" "$word"; done'
    shell = subprocess.run(["sh", "-c", script, "sh", text], capture_output=True, text=True, check=False)
    if "#" not in text:  # a comment, to a shell
        assert shell.returncode == 0
        assert list(got) == shell.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("a | b", "`|`"),
        ("a && b", "`&&`"),
        ("a&&b", "`&&`"),
        ("a || b", "`||`"),
        ("a; b", "`;`"),
        ("a > log", "`>`"),
        ("a 2>&1", "`>`"),
        ("a >> log", "`>>`"),
        ("a < in", "`<`"),
        ("a &", "`&`"),
        ("a http://h/?x=1&y=2", "`&`"),
        ("a $(b)", "`$(`"),
        ('a "$(b)"', "`$(`"),
        ("a `b`", "backtick"),
        ('a "`b`"', "backtick"),
        ("a $HOME/x", "`$H`"),
        ('a "${HOME}/x"', "`${`"),
        ("(a)", "`(`"),
        ("a\nb", "a line end"),
    ],
)
def test_shell_syntax_is_refused(text: str, operator: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_command(text)
    assert operator in caught.value.what
    assert "bash -lc" in caught.value.next_step
    assert caught.value.evidence == (text,)


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("a '|' \"&&\" \\; '$(x)' '`'", ("a", "|", "&&", ";", "$(x)", "`")),
        (r'a "\$x" \$y "cost 5$"', ("a", "$x", "$y", "cost 5$")),
        ("bash -lc 'a && exec b > c'", ("bash", "-lc", "a && exec b > c")),
        ("""vllm --config '{"k": 4}'""", ("vllm", "--config", '{"k": 4}')),
        ("a \\\n  --b \\\n  --c", ("a", "--b", "--c")),
        ("~/bin/a -m ~/x.gguf", ("/home/me my/bin/a", "-m", "/home/me my/x.gguf")),
        ("a ~ ~me/x", ("a", "/home/me my", "/home/me myme/x")),
        ("a '~/x' x~ --m=~/x \\~/x", ("a", "~/x", "x~", "--m=~/x", "~/x")),
        ("a # b", ("a", "#", "b")),
    ],
)
def test_words(text: str, argv: tuple[str, ...]) -> None:
    assert split_command(text, expand=at_home) == argv


def test_nul_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL"):
        split_command("a \0")


def test_assignments_go_to_the_environment() -> None:
    spec = parse_cmd("A=1 B='x y' C= D=~/lib serve --x=1 E=2", expand=at_home)
    assert spec.argv == ("serve", "--x=1", "E=2")
    assert spec.env == {"A": "1", "B": "x y", "C": "", "D": "/home/me my/lib"}
    assert parse_cmd("1A=x").argv == ("1A=x",)


def test_home_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    assert parse_cmd("~/serve").argv == ("/h/serve",)
