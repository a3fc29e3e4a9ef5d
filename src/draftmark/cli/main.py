"""Entry point: picks the verb, owns signals, turns errors into messages and exit statuses.

Heavy imports happen inside the verb that needs them, so that `draftmark --help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn, Protocol, cast

from draftmark import __version__
from draftmark.cli import hosts, leaving
from draftmark.errors import DraftmarkError, Interrupted, UsageError

# verb -> (module, one line); the order is the order of a first day's work.
_VERBS = {
    "tune": ("tune", "find the depth: start each one, measure it, decide, put everything back"),
    "plan": ("plan", "say what tune would do: arms, restarts, minutes, the exact change of flags"),
    "fit": ("fit", "say what each depth leaves of the GPU's memory, before anything is started"),
    "inspect": ("inspect", "engine, flags, speculation state, and what would make tuning unsafe"),
    "bench": ("bench", "load a service and measure it"),
    "why": ("why", "say why a server died, with the lines that prove it: a live service, or files"),
    "watch": ("watch", "write a post-mortem whenever a systemd unit fails: install, remove, status"),
    "restore": ("restore", "put a systemd unit back as it was, whatever became of a run or of what it kept"),
    "report": ("report", "derive result.json, report.html and report.md of a run again from its records"),
    "compare": ("compare", "hold two runs against each other, if they are alike"),
    "sim": ("sim", "a simulated SGLang server: flags, HTTP, log, memory and deaths by version, no GPU"),
}

# Called by other Draftmarks, not by people.
_HIDDEN = {
    "load": ("load", "send requests for a Draftmark on another computer"),
    "trial": ("trial", "run a trial of a Draftmark on another computer, as a node of its cluster"),
}

_FLAGS = "--flags"  # of `fit`: its value are flags themselves

_AGAIN_S = 0.05  # a lost signal is sent anew: by then the callback that lost it is over

# Verbs that may have a server running.
_SERVING = frozenset({"tune", "bench", "trial"})

_EPILOG = """\
services:
  unit:NAME            a live systemd unit, here or with --host over SSH
  embedded:            a real engine and a real small model on this computer (the default of tune)
  cmd:"llama-server …" a command line that draftmark starts and stops
  url:http://…         a running server, only measured, never touched
  docker:NAME pod:[NAMESPACE/]NAME job:ID   a dead server, for why; it takes files as well

exit status:
  0 done · 2 usage · 10 a better configuration was found and not kept · 20 objective missed
  30 refused as unsafe · 40 inconclusive, unsettled · 50 failed and restored · 51 failed and could not restore
  128+n ended by signal n, everything put back first; at a second one at once: what is left to do is printed
"""


class Verb(Protocol):
    """What each verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit status."""
        ...


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, next_step=f"{self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Returns:
        The exit status of `docs/exit-status.md`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    _own_signals(serving=bool(_SERVING.intersection(words[:1])))
    try:
        return _ended(words)
    finally:
        _mute_what_broke()


def _ended(words: list[str]) -> int:
    try:
        status = _dispatch(words)
        if sys.stdout is not None:
            with contextlib.suppress(BrokenPipeError):  # whoever read it has seen enough
                sys.stdout.flush()
        return status
    except Interrupted as stop:
        _say(f"draftmark: stopped by {signal.Signals(stop.signum).name}; everything is as it was")
        return stop.exit_status
    except DraftmarkError as error:
        _show(error)
        return error.exit_status
    except BrokenPipeError:  # `draftmark … | head`: not our error, and nobody is there to be told
        return 0
    except OSError as error:
        _say(f"error: {error.strerror or error}: {error.filename or 'output'}")
        return DraftmarkError.exit_status
    except Exception as error:  # a fault of ours: the user still gets what, evidence and next step
        if os.environ.get("DRAFTMARK_DEBUG"):
            raise
        _show(_fault(error))
        return DraftmarkError.exit_status


def _mute_what_broke() -> None:
    """What could not be written is not tried again when Python ends: that would be another status, and noise."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _dispatch(words: list[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), None)
    parser = _Parser(
        prog="draftmark",
        description="Find the speculative-decoding depth of a live LLM server, safely; say why a server died.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"draftmark {__version__}")
    commands = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    for name, (module, about) in _VERBS.items():
        sub = commands.add_parser(
            name, help=about, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == verb:
            _load(module).add_arguments(sub)
    if verb in _HIDDEN:
        _load(_HIDDEN[verb][0]).add_arguments(commands.add_parser(verb, description=_HIDDEN[verb][1]))
    try:
        args = parser.parse_args(_joined(words) if verb == "fit" else words)
    except UsageError as error:
        if verb == "sim" and error.what.startswith("unrecognized"):
            step = "SGLang's own flags stand behind --: draftmark sim --model … -- --mem-fraction-static 0.8"
            raise UsageError(error.what, next_step=step) from None
        raise
    except SystemExit as told:  # help, or the version: whether that could be written is seen as for a verb
        return int(told.code or 0)
    if args.verb is None:
        parser.print_help()
        return 0
    try:
        return _load((_VERBS | _HIDDEN)[args.verb][0]).run(args)
    finally:
        hosts.close()


def _joined(words: list[str]) -> list[str]:
    """With the value of --flags attached to it: argparse takes none that begins with a dash else."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == _FLAGS and word.startswith("-"):
            found[-1] = f"{_FLAGS}={word}"
        else:
            found.append(word)
    return found


def _load(module: str) -> Verb:
    return cast("Verb", importlib.import_module(f"draftmark.cli.{module}"))


def _own_signals(*, serving: bool = True) -> None:
    """First signal: unwind, stop the server, leave. Second: leave at once; the guard kills what is left."""
    seen = 0
    told = False

    def handle(signum: int, _frame: FrameType | None) -> None:
        nonlocal seen, told
        seen += 1
        if seen > 1:
            try:
                _say(f"\n{leaving.last_words()}".rstrip())
            finally:
                os._exit(128 + signum)
        if not told:
            told = True
            _say(f"\nstopping{': everything is put back first' * serving} (once more to leave at once)")
        raise Interrupted(signum)

    def again(lost: sys.UnraisableHookArgs) -> None:
        nonlocal seen
        if not isinstance(lost.exc_value, Interrupted):
            sys.__unraisablehook__(lost)
            return
        # It came while Python ran a destructor or a weakref's callback, which let nothing through: once more.
        seen -= 1
        signum = lost.exc_value.signum
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signum)).start()

    sys.unraisablehook = again
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup, or a shell that runs us in the background
            signal.signal(signum, handle)


def _fault(error: Exception) -> DraftmarkError:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame is not None else "unknown place"
    return DraftmarkError(
        "draftmark itself failed; nothing is left running",
        evidence=(f"{type(error).__name__}: {error}"[:500], where),
        next_step="report it; with DRAFTMARK_DEBUG=1 the whole traceback is shown",
    )


def _say(text: str) -> None:
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        return


def _show(error: DraftmarkError) -> None:
    from rich.console import Console

    from draftmark.report.terminal import print_error
    from draftmark.run.redact import text

    error.what, error.next_step = text(error.what), text(error.next_step)
    error.evidence = tuple(text(line) for line in error.evidence)
    # Whoever reads stderr may be gone (rich then exits), or its disk full: the status still tells.
    with contextlib.suppress(OSError, SystemExit):
        print_error(error, Console(stderr=True, soft_wrap=True))
