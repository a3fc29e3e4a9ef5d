"""`python launcher.py <llama-server flags>`: xllamacpp's llama.cpp HTTP server behind llama-server's command line.

Draftmark drives every llama.cpp server through llama-server's flags, exit statuses and log. The embedded engine is
a Python extension without a command line, so this program supplies the flags of llama-server that Draftmark uses,
with the same spelling, the same error texts and exit status 1 for each of them.

It imports nothing but the standard library and xllamacpp, and is run by path, so that a server starts in about a
second. Where it departs from llama-server: SIGTERM and SIGINT end it at once, with status 0 even while requests run
(llama-server waits for them), and by the signal itself while the model loads; without `--model` it refuses instead
of becoming a router; it reads no LLAMA_ARG_ variables.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

SPECULATION_TYPES = (
    "none",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
ENDING = (signal.SIGTERM, signal.SIGINT)
_DRAFT_MAX_GONE = "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max"
_DRAFT_MIN_GONE = "the argument has been removed. use --spec-draft-n-min or --spec-ngram-mod-n-min"
_NGRAM_N_GONE = "the argument has been removed. use the respective --spec-ngram-*-size-n"
_NGRAM_M_GONE = "the argument has been removed. use the respective --spec-ngram-*-size-m"
_HITS_GONE = "the argument has been removed. use the respective --spec-ngram-*-min-hits"

Apply = Callable[[Any, Any], None]
"""Writes a parsed value into xllamacpp's CommonParams. `Any`: the package has no type information."""


def integer(text: str) -> int:
    """A 32-bit number as C's `stoi` reads it: leading digits count, what follows them does not."""
    match = re.match(r"\s*([+-]?\d+)", text)
    if match is None or not -(2**31) <= int(match[1]) < 2**31:
        raise ValueError("stoi")
    return int(match[1])


def seed(text: str) -> int:
    """A seed; -1, taken modulo 2**32, asks for a random one."""
    match = re.match(r"\s*([+-]?\d+)", text)
    if match is None:
        raise ValueError("stoul")
    return int(match[1]) % 2**32


def slots(text: str) -> int:
    """A number of slots; 0 is the one number that llama-server refuses."""
    if (number := integer(text)) == 0:
        raise ValueError("error: invalid value for n_parallel\n")
    return number


def ngram_size(letter: str) -> Callable[[str], int]:
    """Reader of the length of an n-gram (`N`) or of its continuation (`M`)."""

    def read(text: str) -> int:
        if not 1 <= (number := integer(text)) <= 1024:
            raise ValueError(f"ngram size {letter} must be between 1 and 1024 inclusive")
        return number

    return read


def min_hits(text: str) -> int:
    """How often an n-gram must have been seen."""
    if (number := integer(text)) < 1:
        raise ValueError("ngram min hits must be at least 1")
    return number


def speculation_types(text: str) -> tuple[str, ...]:
    """A comma-separated list of speculation methods."""
    names = tuple(text.split(","))
    for name in names:
        if name not in SPECULATION_TYPES:
            raise ValueError(f"unknown speculative type: {name}")
    return names


def removed(because: str) -> Callable[[str], NoReturn]:
    """Reader of a flag that is no more."""

    def read(_text: str) -> NoReturn:
        raise ValueError(because)

    return read


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        names: Its spellings.
        help: What it does, for people.
        apply: How its value reaches the engine.
        read: Turns the following word into a value, or raises ValueError; None for a switch.
        metavar: Name of the value in the usage text.
        constant: Value of a switch.
    """

    names: tuple[str, ...]
    help: str
    apply: Apply
    read: Callable[[str], Any] | None = None
    metavar: str = ""
    constant: bool = True

    @property
    def usage(self) -> str:
        """The lines that llama-server would print for it."""
        head = ", ".join(self.names) + (f" {self.metavar}" if self.metavar else "")
        return f"{head:<39} {self.help}" if len(head) < 39 else f"{head}\n{'':<39} {self.help}"


def _set(path: str) -> Apply:
    """Apply that stores the value at a dotted path below CommonParams."""
    *owners, name = path.split(".")

    def apply(params: Any, value: Any) -> None:
        for owner in owners:
            params = getattr(params, owner)
        setattr(params, name, value)

    return apply


def _nothing(_params: Any, _value: Any) -> None:
    """Apply of a flag that is answered before an engine is needed."""


def _host(params: Any, value: str) -> None:
    params.hostnames = [value]


def _parallel(params: Any, value: int) -> None:
    """A negative number means auto: four slots on one buffer."""
    params.n_parallel = value if value > 0 else 4
    if value < 0:
        params.kv_unified = True


def _threads(params: Any, value: int) -> None:
    params.cpuparams.n_threads = value if value > 0 else os.cpu_count() or 1


def _threads_batch(params: Any, value: int) -> None:
    params.cpuparams_batch.n_threads = value if value > 0 else os.cpu_count() or 1


def _types(params: Any, value: tuple[str, ...]) -> None:
    import xllamacpp

    prefix = "COMMON_SPECULATIVE_TYPE_"
    enum = xllamacpp.common_speculative_type
    params.speculative.types = [getattr(enum, prefix + name.upper().replace("-", "_")) for name in value]


def _api_key(params: Any, value: str) -> None:
    params.api_keys = [key for key in value.split(",") if key]


HELP = Flag(("-h", "--help", "--usage"), "print usage and exit", _nothing)
VERSION = Flag(("--version",), "show version and build info", _nothing)
MODEL = Flag(("-m", "--model"), "model path to load", _set("model.path"), str, "FNAME")
PARALLEL = Flag(("-np", "--parallel"), "number of server slots (default: -1, auto)", _parallel, slots, "N")
THREADS = Flag(("-t", "--threads"), "threads for generation (default: -1, all CPUs)", _threads, integer, "N")
THREADS_BATCH = Flag(
    ("-tb", "--threads-batch"), "threads for prompts (default: same as --threads)", _threads_batch, integer, "N"
)
N_N, N_M = "--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m"
FLAGS: tuple[Flag, ...] = (
    HELP,
    VERSION,
    MODEL,
    Flag(("--host",), "ip address to listen (default: 127.0.0.1)", _host, str, "HOST"),
    Flag(("--port",), "port to listen (default: 8080)", _set("port"), integer, "PORT"),
    Flag(("-c", "--ctx-size"), "size of the prompt context (0 = from the model)", _set("n_ctx"), integer, "N"),
    PARALLEL,
    THREADS,
    THREADS_BATCH,
    Flag(("-b", "--batch-size"), "logical maximum batch size (default: 2048)", _set("n_batch"), integer, "N"),
    Flag(("-ub", "--ubatch-size"), "physical maximum batch size (default: 512)", _set("n_ubatch"), integer, "N"),
    Flag(("-kvu", "--kv-unified"), "one KV buffer for all sequences", _set("kv_unified")),
    Flag(("-no-kvu", "--no-kv-unified"), "one KV buffer a sequence", _set("kv_unified"), constant=False),
    Flag(("--metrics",), "serve /metrics (default: disabled)", _set("endpoint_metrics")),
    Flag(("--slots",), "serve /slots (default: enabled)", _set("endpoint_slots")),
    Flag(("--no-slots",), "do not serve /slots", _set("endpoint_slots"), constant=False),
    Flag(("--warmup",), "warm up with an empty run (default: enabled)", _set("warmup")),
    Flag(("--no-warmup",), "no empty run before the first request", _set("warmup"), constant=False),
    Flag(("-s", "--seed"), "RNG seed (default: -1, random)", _set("sampling.seed"), seed, "SEED"),
    Flag(("--api-key",), "API keys, comma-separated (default: none)", _api_key, str, "KEY"),
    Flag(("-lv", "--verbosity", "--log-verbosity"), "log verbosity (default: 3)", _set("verbosity"), integer, "N"),
    Flag(
        ("--spec-draft-model", "-md", "--model-draft"),
        "draft model (default: none)",
        _set("speculative.draft.mparams.path"),
        str,
        "FNAME",
    ),
    Flag(
        ("--spec-draft-n-max",),
        "tokens to draft (default: 3)",
        _set("speculative.draft.n_max"),
        integer,
        "N",
    ),
    Flag(
        ("--spec-draft-n-min",),
        "fewest tokens to draft (default: 0)",
        _set("speculative.draft.n_min"),
        integer,
        "N",
    ),
    Flag(
        ("--spec-type",),
        "speculation methods (default: none)",
        _types,
        speculation_types,
        ",".join(SPECULATION_TYPES),
    ),
    Flag(
        (N_N,),
        "length of the lookup n-gram (default: 12)",
        _set("speculative.ngram_simple.size_n"),
        ngram_size("N"),
        "N",
    ),
    Flag(
        (N_M,), "length of the draft (default: 48)", _set("speculative.ngram_simple.size_m"), ngram_size("M"), "N"
    ),
    Flag(
        ("--spec-ngram-simple-min-hits",),
        "fewest sightings (default: 1)",
        _set("speculative.ngram_simple.min_hits"),
        min_hits,
        "N",
    ),
    Flag(("--draft", "--draft-n", "--draft-max"), _DRAFT_MAX_GONE, _nothing, removed(_DRAFT_MAX_GONE), "N"),
    Flag(("--draft-min", "--draft-n-min"), _DRAFT_MIN_GONE, _nothing, removed(_DRAFT_MIN_GONE), "N"),
    Flag(("--spec-ngram-size-n",), _NGRAM_N_GONE, _nothing, removed(_NGRAM_N_GONE), "N"),
    Flag(("--spec-ngram-size-m",), _NGRAM_M_GONE, _nothing, removed(_NGRAM_M_GONE), "N"),
    Flag(("--spec-ngram-min-hits",), _HITS_GONE, _nothing, removed(_HITS_GONE), "N"),
)
_BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


class ArgumentError(Exception):
    """A command line that llama-server would refuse; the text is what it would print."""


def parse(arguments: Sequence[str]) -> dict[Flag, Any]:
    """Read a command line, left to right; of a repeated flag the last one counts.

    Raises:
        ArgumentError: Unknown flag, missing or unreadable value, or a flag that is no more.
    """
    values: dict[Flag, Any] = {}
    words = iter(arguments)
    for word in words:
        flag = _BY_NAME.get(word)
        if flag is None:
            raise ArgumentError(f"error: invalid argument: {word}")
        if flag.read is None:
            values[flag] = flag.constant
            continue
        try:
            text = next(words, None)
            if text is None:
                raise ValueError("expected value for argument")
            values[flag] = flag.read(text)
        except ValueError as error:
            raise ArgumentError(
                f'error while handling argument "{word}": {error}\n\nusage:\n{flag.usage}\n\n\n'
                "to show complete usage, run with -h"
            ) from None
    return values


def say(line: str) -> None:
    """One line on stderr, where llama-server's log goes. A reader that has gone is no reason to die."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201  a program's own log


def leave(status: int) -> NoReturn:
    """End without waiting for the engine's threads, which hold requests and cannot be joined."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def version() -> str:
    """The text of `--version`, in llama-server's form."""
    import xllamacpp

    build = xllamacpp.BUILD_INFO
    return (
        f"version: {xllamacpp.__version__} (xllamacpp, {build['commit']})\n"
        f"built with {build['compiler']} for {build['build_target']}"
    )


def serve(values: dict[Flag, Any]) -> NoReturn:
    """Load the model, serve until SIGTERM or SIGINT, leave with 0; with 1 if the engine does not come up.

    xllamacpp holds the interpreter's lock while it loads, for seconds, so no line of Python could answer a signal
    then: until it has loaded, signals keep their default action, which needs none. The engine's threads block them
    from the start, so that afterwards only `sigwait` here receives them.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.hostnames = ["127.0.0.1"]
    for flag, value in {PARALLEL: -1, THREADS: -1, **values}.items():
        flag.apply(params, value)
    if THREADS_BATCH not in values:
        params.cpuparams_batch.n_threads = params.cpuparams.n_threads
    held: list[Any] = []
    loaded = threading.Event()

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            held.append(xllamacpp.Server(params))  # the server lives as long as the object does
        except Exception as error:
            say(f"E launcher: {error}")
            leave(1)
        loaded.set()

    threading.Thread(target=run, name="engine", daemon=True).start()
    loaded.wait()
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    signal.sigwait(ENDING)
    say("I srv    operator(): operator(): cleaning up before exit...")
    leave(0)


def main(arguments: Sequence[str]) -> int:
    """Answer `--help` and `--version`, or serve."""
    for signum in ENDING:  # also where a shell started us in the background, with SIGINT ignored
        signal.signal(signum, signal.SIG_DFL)
    with suppress(OSError):
        Path("/proc/self/comm").write_text("draftmark-llama")  # what `ps` and `top` show; 15 bytes at most
    try:
        values = parse(arguments)
    except ArgumentError as error:
        say(str(error))
        return 1
    if HELP in values:
        print("usage: launcher.py -m FNAME [flags]\n\n" + "\n".join(flag.usage for flag in FLAGS))  # noqa: T201
        return 0
    try:
        if VERSION in values:
            say(version())
            return 0
        if MODEL not in values:
            say("error: --model is required")
            return 1
        serve(values)
    except ImportError as error:
        say(f"error: the xllamacpp engine cannot be loaded: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
