"""ports.Engine for SGLang: joins the folder's flags, log and HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from draftmark.engines.address import host_in_url, port_number, sendable_key
from draftmark.engines.sglang import arms, knobs, logs, refusals
from draftmark.engines.sglang.flags import Parsed, first_argument, parse
from draftmark.engines.sglang.hazards import hazards_of
from draftmark.engines.sglang.versions import Find, Rules, facts, installed, rules_for
from draftmark.errors import UsageError
from draftmark.model import Arm, DrainFacts, Evidence, Fit, FitFigures, KnobSpec, Refusal
from draftmark.ports import FitScene

if TYPE_CHECKING:
    from draftmark.engines.sglang.client import SglangClient


class SGLang:
    """`python3 -m sglang.launch_server` and `sglang serve`, 0.5.10 to 0.5.23."""

    name = "sglang"

    def __init__(self, *, method: str | None = None, version: str | None = None, find: Find | None = None) -> None:
        """What a command line does not say.

        Args:
            method: The speculative algorithm to bring when a command line names none.
            version: Of SGLang; None to look for the package beside the interpreter.
            find: Looks there on the service's host; None on this one.
        """
        self._bring = method
        self._version = version
        self._find = find

    def version(self, command: Sequence[str]) -> str | None:
        """As it was told, or as the package beside the interpreter says; None where neither does."""
        return self._version or installed(command, self._find)

    def rules(self, command: Sequence[str]) -> Rules:
        """Whose rules are followed for a command line, and what that assumes."""
        version = self.version(command)
        return refusals.inferred(command) if version is None else rules_for(version)

    def native_api(self, command: Sequence[str]) -> bool:
        """Whether its `/tokenize` surely knows the chat template, so that /generate can be asked as a chat is."""
        version = self.version(command)
        return version is not None and self.rules(command).minor >= facts()["tokenizes_messages_since"]

    def _parsed(self, command: Sequence[str]) -> Parsed:
        return parse(command, self.rules(command))

    def recognises(self, command: Sequence[str]) -> bool:
        """Whether SGLang's server stands in the command line."""
        return first_argument(command) is not None

    def base_url(self, command: Sequence[str]) -> str:
        """Host and port it will listen on; every interface is reached over loopback."""
        parsed = self._parsed(command)
        host, port = parsed.value("--host") or "127.0.0.1", parsed.value("--port") or str(facts()["default_port"])
        scheme = "https" if parsed.value("--ssl-certfile") else "http"
        return f"{scheme}://{host_in_url(host, f'--host {host!r}')}:{port_number(port, f'--port {port!r}')}"

    def depth(self, command: Sequence[str]) -> int:
        """Depth the command line asks for."""
        return arms.depth_of(command, self.rules(command))

    def arm(self, command: Sequence[str]) -> Arm:
        """The arm that the command line is, adaptive speculation included."""
        return arms.arm_of(command, self.rules(command))

    def adaptive(self, command: Sequence[str]) -> Arm:
        """The command line's own adaptive arm, else one that starts at the middle of its candidates."""
        return arms.adaptive_arm(command, self.rules(command))

    def knobs(self, command: Sequence[str]) -> tuple[KnobSpec, ...]:
        """What `--knob` may vary in this version."""
        return knobs.knobs_of(command, self.rules(command))

    def with_arm(self, command: Sequence[str], arm: Arm) -> tuple[str, ...]:
        """The command line of an arm."""
        return arms.with_arm(command, arm, self.rules(command), bring=self._bring)

    def refuse(self, command: Sequence[str], arm: Arm) -> Refusal | None:
        """What the server would refuse at its start, and depths that draft nothing."""
        return refusals.refusal(command, arm, self.rules(command), bring=self._bring)

    def check(self, command: Sequence[str]) -> None:
        """Flags that this version does not have, and combinations at which its launcher ends.

        Raises:
            UsageError: The server would not start.
        """
        refusals.check_flags(command, self.rules(command))
        path = self._parsed(command).value("--config")
        if path is not None and _speculates(Path(path)):
            raise UsageError(
                f"{path} sets speculation, where an arm cannot change it",
                evidence=(f"--config {path}",),
                next_step="write its speculative settings as flags on the command line instead",
            )

    def fit(self, command: Sequence[str], arms: Sequence[Arm], scene: FitScene) -> Fit | None:
        """What each arm leaves of the GPU's memory, by the accounting of this version."""
        from draftmark.engines.sglang.memory.entry import fit

        if scene.version is None and self._version is not None:
            scene = replace(scene, version=self._version)
        written: list[Sequence[str]] = []

        def with_arm(words: Sequence[str], arm: Arm, version: str) -> Sequence[str]:
            written.append(self._with_arm_of(words, arm, version))
            return written[-1]

        found = fit(command, arms, scene, with_arm)
        return replace(found, assumptions=(*found.assumptions, *self._method_not_used(written)))

    def _method_not_used(self, written: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """That the method which the user names is not the one that the flags name."""
        named = {method for words in written if (method := arms.method_of(self._parsed(words))) is not None}
        if self._bring is None or not named or self._bring.upper() in named:
            return ()
        return (f"--method {self._bring} is not used: the flags name {', '.join(sorted(named))}",)

    def _with_arm_of(self, command: Sequence[str], arm: Arm, version: str) -> tuple[str, ...]:
        """The same by the rules of a version that something else tells."""
        return arms.with_arm(command, arm, rules_for(version), bring=self._bring)

    def fit_figures(self, log: Sequence[str]) -> FitFigures | None:
        """Tokens, requests at once and state slots by the last start in a log."""
        from draftmark.engines.sglang.memory.boot import figures_of

        return figures_of(log)

    def decisive(self, log: Sequence[str], file: str) -> Evidence | None:
        """The line that says why a start failed."""
        return logs.decisive(log, file)

    def speculation_lost(self, log: Sequence[str], file: str) -> Evidence | None:
        """The line by which the server says that it does not speculate as asked."""
        return logs.speculation_lost(log, file)

    def summary(self, command: Sequence[str]) -> dict[str, str]:
        """Facts of the command line, those that are given, and whose rules are followed."""
        rules, parsed = self.rules(command), self._parsed(command)
        found = {key: parsed.value(name) for key, name in facts()["summary"].items()}
        shown = {key: value for key, value in found.items() if value is not None}
        shown["method"] = arms.method_of(parsed) or "none"
        if arms.adaptive(parsed):
            shown["adaptive"] = parsed.value(arms.ADAPTIVE_CONFIG) or "default candidates"
        shown["rules"] = rules.assumption or f"SGLang {rules.version}"
        return shown

    def request_extra(self) -> dict[str, object]:
        """A prompt cache of its own for each request: a prompt asked before would flatter the later arm."""
        return {"cache_salt": "{tag}"}

    def drain(self, command: Sequence[str]) -> DrainFacts:
        """It waits for its requests without limit; idle, it ends within seconds, up to 0.5.17 by its own SIGKILL.

        `worst_s` is that of an idle server, which is how Draftmark stops one.
        """
        rules, parsed, known = self.rules(command), self._parsed(command), facts()["shutdown"]
        worst = float(known["idle_s"])
        if rules.minor >= known["reaping_since"]:
            worst += known["reaping_s"]
        if any(parsed.has(flag) for flag in known["pinned_flags"]):
            worst += known["pinned_s"]
        return DrainFacts(
            drains=True,
            worst_s=worst,
            children_need_main_only=True,
            exits_with_sigkill=rules.minor <= known["exits_with_sigkill_until"],
            source=known["source"],
        )

    def hazards(self, command: Sequence[str]) -> list[dict[str, str]]:
        """What in the command line would spoil a tuning."""
        return hazards_of(command, self.rules(command))

    def cpu_bound(self, command: Sequence[str]) -> bool | None:
        """Only where it is told to compute on CPUs."""
        return (self._parsed(command).value("--device") or "").partition(":")[0] == "cpu"

    def gpus(self, command: Sequence[str]) -> int | None:
        """Tensor times pipeline ranks, times the replicas unless these share the tensor ranks; none on CPUs."""
        if self.cpu_bound(command):
            return 0
        parsed = self._parsed(command)
        flags = ["--tp-size", "--pp-size"]
        if not parsed.has("--enable-dp-attention"):
            flags.append("--dp-size")
        told = (parsed.value(flag) or "1" for flag in flags)
        return prod(max(1, int(text)) if text.isdecimal() else 1 for text in told)

    def with_port(self, command: Sequence[str], port: int) -> tuple[str, ...]:
        """Of two the last counts."""
        return (*command, "--port", str(port))

    def headers(self, command: Sequence[str]) -> dict[str, str]:
        """The key for requests; where there is only one for administration, that, which requests do not mind."""
        parsed = self._parsed(command)
        for flag in ("--api-key", "--admin-api-key"):
            key = parsed.value(flag)
            if key:
                return {"Authorization": f"Bearer {sendable_key(key, flag)}"}
        return {}

    def client(self, base_url: str, headers: Mapping[str, str]) -> SglangClient:
        """A client for a running server."""
        from draftmark.engines.sglang.client import SglangClient  # HTTP, which `fit` does without

        return SglangClient(base_url, headers=headers)


def _speculates(path: Path) -> bool:
    """Whether a YAML file of the command line's flags sets any of speculation; not where it cannot be read here."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return False
    return any(line.lstrip(" '\"").replace("_", "-").startswith("speculative-") for line in text.splitlines())
