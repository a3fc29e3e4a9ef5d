"""What SGLang's launcher says where it refuses its flags, before it starts anything. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.engines.sglang import arms, refusals
from draftmark.engines.sglang.flags import parse
from draftmark.engines.sglang.versions import Rules
from draftmark.errors import UsageError

_SITE = "/usr/local/lib/python3.12/dist-packages/sglang"
_FRAMES = (
    ("launch_server.py", 68, "<module>", "server_args = prepare_server_args(sys.argv[1:])"),
    ("srt/server_args.py", 9380, "prepare_server_args", "return ServerArgs.from_cli_args(raw_args)"),
    ("srt/server_args.py", 3592, "__post_init__", "handle_speculative_decoding(self)"),
    ("srt/arg_groups/speculative_hook.py", 144, "handle_speculative_decoding", "algo.handle_server_args(self)"),
)


class LauncherError(UsageError):
    """The launcher would end here.

    Attributes:
        said: Its last words.
        status: Its exit status: 2 from the parser, 1 from an exception.
    """

    def __init__(self, error: UsageError, said: str, status: int) -> None:
        super().__init__(error.what, evidence=error.evidence, next_step=error.next_step)
        self.said = said
        self.status = status


def check(command: Sequence[str], rules: Rules) -> None:
    """Flags and combinations that the version refuses.

    Raises:
        LauncherError: It does.
    """
    try:
        refusals.check_flags(command, rules)
    except UsageError as error:
        raise LauncherError(error, *_parser_words(command, rules, error)) from None
    asked = arms.arm_of(command, rules)
    refused = refusals.refusal(command, asked, rules)
    if refused is None or refused.code != "engine-refuses" or arms.adaptive(parse(command, rules)):
        return
    words = refused.because.partition(": ")[2] or refused.because
    raise LauncherError(UsageError(refused.because), _traceback(f"ValueError: {words}"), 1)


def _parser_words(command: Sequence[str], rules: Rules, error: UsageError) -> tuple[str, int]:
    given = parse(command, rules).given
    strange = [each for each in given if each.option is None and not each.could_be]
    unsure = next((each for each in given if each.could_be), None)
    if unsure is not None:
        return _usage(f"ambiguous option: {unsure.spelled} could match {', '.join(unsure.could_be)}"), 2
    if strange:
        told = " ".join(word for each in strange for word in (each.spelled, *each.values))
        return _usage(f"unrecognized arguments: {told}"), 2
    bare = next((each for each in given if each.option and each.option.arity in "1+" and not each.values), None)
    if bare is not None:
        return _usage(f"argument {bare.name}: expected one argument"), 2
    topk = "topk" in error.what and "TypeError" in error.what
    kind = "TypeError: '>' not supported between instances of 'NoneType' and 'int'" if topk else "AssertionError"
    return _traceback(kind), 1


def _usage(words: str) -> str:
    return f"usage: launch_server.py [-h] --model-path MODEL_PATH\nlaunch_server.py: error: {words}\n"


def _traceback(last: str) -> str:
    told = "".join(
        f'  File "{_SITE}/{file}", line {line}, in {name}\n    {source}\n' for file, line, name, source in _FRAMES
    )
    return f"Traceback (most recent call last):\n{told}{last}\n"
