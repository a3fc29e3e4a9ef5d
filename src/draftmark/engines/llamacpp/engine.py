"""ports.Engine for llama-server: joins the folder's flags, log and HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from urllib.parse import quote

from draftmark.engines.address import host_in_url, port_number, sendable_key
from draftmark.engines.flags import value_of
from draftmark.engines.llamacpp import flags, knobs, logs
from draftmark.engines.llamacpp.client import LlamaServerClient
from draftmark.errors import BadInputError, UsageError
from draftmark.model import Arm, DrainFacts, Evidence, Fit, FitFigures, KnobSpec, Refusal
from draftmark.ports import FitScene

_GGUF_MAGIC = b"GGUF"


class LlamaCpp:
    """llama-server, and what speaks its flags and HTTP."""

    name = "llamacpp"

    def __init__(self, *, method: str | None = None) -> None:
        """`method` is the drafting method to bring when a command line names none."""
        self._bring = method

    def recognises(self, command: Sequence[str]) -> bool:
        """Whether llama-server stands in the command line."""
        return flags.program_index(command) is not None

    def base_url(self, command: Sequence[str]) -> str:
        """Host and port it will listen on; 0.0.0.0 and :: are reached over loopback."""
        known = flags.facts()
        host = host_in_url(*_told(command, known["facts"]["host"], "LLAMA_ARG_HOST", "127.0.0.1"))
        port = port_number(*_told(command, known["facts"]["port"], "LLAMA_ARG_PORT", str(known["default_port"])))
        return f"http://{host}:{port}{_prefix(value_of(command, known['facts']['api_prefix']) or '')}"

    def depth(self, command: Sequence[str]) -> int:
        """Depth the command line asks for."""
        return flags.depth_of(command)

    def arm(self, command: Sequence[str]) -> Arm:
        """Its depth; no other flag is varied."""
        return Arm(flags.depth_of(command))

    def adaptive(self, command: Sequence[str]) -> Arm:  # noqa: ARG002 - no flag changes it
        """There is none.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "llama-server does not adapt its depth while it serves",
            next_step="leave `adaptive` out of --depth; SGLang has it from 0.5.12 on",
        )

    def knobs(self, command: Sequence[str]) -> tuple[KnobSpec, ...]:
        """What `--knob` may vary."""
        return knobs.knobs_of(command)

    def with_arm(self, command: Sequence[str], arm: Arm) -> tuple[str, ...]:
        """The command line of an arm."""
        return flags.with_arm(command, arm, bring=self._bring)

    def refuse(self, command: Sequence[str], arm: Arm) -> Refusal | None:
        """Depths that draft nothing."""
        return flags.refusal(command, arm, bring=self._bring)

    def check(self, command: Sequence[str]) -> None:
        """Removed flags, and model files that are no GGUF: seconds now rather than a failed start later."""
        for flag, instead in flags.removed_flags(command).items():
            raise UsageError(
                f"this engine no longer has the flag {flag}",
                evidence=(" ".join(command),),
                next_step=f"write {instead} in its place",
            )
        for key in ("model", "draft_model"):
            path = value_of(command, flags.facts()["facts"][key])
            if path is not None:
                _check_gguf(Path(path).expanduser())

    def fit(self, command: Sequence[str], arms: Sequence[Arm], scene: FitScene) -> Fit | None:  # noqa: ARG002
        """It fits layers to the memory by itself, and says so only when it starts."""
        return None

    def fit_figures(self, log: Sequence[str]) -> FitFigures | None:  # noqa: ARG002
        """Not read from its log."""
        return None

    def decisive(self, log: Sequence[str], file: str) -> Evidence | None:
        """The line that says why a start failed."""
        return logs.decisive(log, file)

    def speculation_lost(self, log: Sequence[str], file: str) -> Evidence | None:
        """The line by which the server says it goes on without speculation."""
        return logs.speculation_lost(log, file)

    def summary(self, command: Sequence[str]) -> dict[str, str]:
        """Facts of the command line."""
        return flags.summary(command)

    def request_extra(self) -> dict[str, object]:
        """No prompt cache: the arms ask the same prompts, and a cached one would flatter the later arm."""
        return {"cache_prompt": False}

    def drain(self, command: Sequence[str]) -> DrainFacts:  # noqa: ARG002 - no flag changes it
        """It cuts what is in flight, and may then hang until a second signal; idle, it ends at once."""
        known = flags.facts()["shutdown"]
        return DrainFacts(drains=known["drains"], worst_s=known["worst_s"], source=known["source"])

    def hazards(self, command: Sequence[str]) -> list[dict[str, str]]:
        """Endpoints that are off, and a depth in force that drafts nothing."""
        found: list[dict[str, str]] = []
        if "--metrics" not in command:
            found.append(
                {
                    "what": "/metrics is off: acceptance is summed from the answers, rounds are unknown",
                    "evidence": "no --metrics on the command line",
                    "next_step": "add --metrics",
                }
            )
        if "--no-slots" in command:
            found.append(
                {
                    "what": "/slots is off: whether speculation is really on cannot be asked",
                    "evidence": "--no-slots",
                    "next_step": "take --no-slots out",
                }
            )
        depth = flags.depth_of(command)
        dead = flags.refusal(command, Arm(depth)) if depth else None
        if dead is not None:
            found.append(
                {
                    "what": "speculation is configured and does nothing",
                    "evidence": dead.because,
                    "next_step": "raise the depth or lower that minimum; draftmark tune finds the depth",
                }
            )
        return found

    def cpu_bound(self, command: Sequence[str]) -> bool | None:
        """By the layers that are sent to a GPU; unset, the build sends what fits to any GPU that there is."""
        layers = value_of(command, flags.facts()["facts"]["gpu_layers"])
        if layers == "0" or any(PurePath(word).name == "launcher.py" for word in command):
            return True
        return None if layers in (None, "auto") else False

    def gpus(self, command: Sequence[str]) -> int | None:
        """None on CPUs alone; else all that it can see."""
        return 0 if self.cpu_bound(command) else None

    def with_port(self, command: Sequence[str], port: int) -> tuple[str, ...]:
        """Of two the last counts."""
        return (*command, "--port", str(port))

    def headers(self, command: Sequence[str]) -> dict[str, str]:
        """The first of the keys that the server was started with."""
        keys = value_of(command, flags.facts()["facts"]["api_key"])
        key = next((key for key in (keys or "").split(",") if key), None)
        return {} if key is None else {"Authorization": f"Bearer {sendable_key(key, '--api-key')}"}

    def client(self, base_url: str, headers: Mapping[str, str]) -> LlamaServerClient:
        """A client for a running server."""
        return LlamaServerClient(base_url, headers=headers)


# --- where it listens -------------------------------------------------------------------------------------


def _told(command: Sequence[str], names: Sequence[str], variable: str, default: str) -> tuple[str, str]:
    """A value of the command line, else of the environment, and the words that gave it."""
    value = value_of(command, names)
    if value is not None:
        return value, f"{names[0]} {value!r}"
    value = os.environ.get(variable) or default
    return value, f"{variable}={value!r}"


def _prefix(text: str) -> str:
    """The path before every endpoint, percent-encoded."""
    if text and not text.startswith("/"):
        raise UsageError(
            f"the prefix {text[:80]!r} does not begin with /",
            evidence=(f"--api-prefix {text[:80]!r}",),
            next_step=f"write it as /{text[:80]}",
        )
    return quote(text.encode("utf-8", "surrogateescape").rstrip(b"/"))


def _check_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise BadInputError(
            f"cannot read the model {path}",
            evidence=(f"{error.strerror} (errno {error.errno})",),
            next_step="give an existing .gguf file after -m",
        ) from None
    if magic != _GGUF_MAGIC:
        raise BadInputError(
            f"{path} is not a GGUF file",
            evidence=(f"it begins with {magic!r}, a GGUF begins with {_GGUF_MAGIC!r}",),
            next_step="give a .gguf file after -m (a safetensors model is converted by llama.cpp's convert script)",
        )
