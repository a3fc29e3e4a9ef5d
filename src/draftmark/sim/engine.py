"""ports.Engine for a simulated server: SGLang's, with `draftmark sim … --` before its flags, and its own memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.versions import Rules
from draftmark.errors import UsageError
from draftmark.model import Arm, DrainFacts, Fit, FitArm, FitFigures, KnobSpec, Refusal
from draftmark.ports import FitScene
from draftmark.sim.commandline import SERVES, command_of
from draftmark.sim.presets import cards_of, model_of
from draftmark.sim.words import Words, place_of, verb_at


class SimulatedSGLang(SGLang):
    """`draftmark sim … -- …`, everywhere that SGLang's own command line could stand."""

    def __init__(self, *, method: str | None = None) -> None:
        """As SGLang's; the version stands in the command line."""
        super().__init__(method=method)

    def _real(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command line that SGLang would have."""
        words = place_of(command).words
        return command_of(words, model_of(words.model), cards_of(words.gpus))

    def version(self, command: Sequence[str]) -> str | None:
        """As `--sglang-version` says."""
        return place_of(command).words.version if self.recognises(command) else super().version(command)

    def recognises(self, command: Sequence[str]) -> bool:
        """Whether a simulated server is started."""
        return verb_at(command) is not None

    def stands_for(self, command: Sequence[str]) -> tuple[SGLang, tuple[str, ...]]:
        """The engine that is simulated, and the command line that it would have."""
        return SGLang(method=self._bring, version=self.version(command)), self._real(command)

    def rules(self, command: Sequence[str]) -> Rules:
        """Of the version that is simulated."""
        sglang, real = self.stands_for(command)
        return sglang.rules(real)

    def base_url(self, command: Sequence[str]) -> str:
        """Where it will listen."""
        sglang, real = self.stands_for(command)
        return sglang.base_url(real)

    def depth(self, command: Sequence[str]) -> int:
        """Depth of its flags."""
        sglang, real = self.stands_for(command)
        return sglang.depth(real)

    def arm(self, command: Sequence[str]) -> Arm:
        """The arm that its flags are."""
        sglang, real = self.stands_for(command)
        return sglang.arm(real)

    def adaptive(self, command: Sequence[str]) -> Arm:
        """A simulated server keeps its depth.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a simulated server does not adapt its depth", evidence=(" ".join(command)[:200],))

    def knobs(self, command: Sequence[str]) -> tuple[KnobSpec, ...]:
        """As SGLang of that version."""
        sglang, real = self.stands_for(command)
        return sglang.knobs(real)

    def with_arm(self, command: Sequence[str], arm: Arm) -> tuple[str, ...]:
        """The command line with the arm's flags behind `--`."""
        place = place_of(command)
        sglang = SGLang(method=self._bring, version=place.words.version)
        return place.with_flags(sglang.with_arm((*SERVES, *place.flags), arm)[len(SERVES) :])

    def refuse(self, command: Sequence[str], arm: Arm) -> Refusal | None:
        """As SGLang of that version."""
        sglang, real = self.stands_for(command)
        return sglang.refuse(real, arm)

    def check(self, command: Sequence[str]) -> None:
        """As SGLang of that version.

        Raises:
            UsageError: It would not start.
        """
        sglang, real = self.stands_for(command)
        sglang.check(real)

    def fit(self, command: Sequence[str], arms: Sequence[Arm], scene: FitScene) -> Fit | None:
        """What `draftmark fit` says of SGLang on these cards, and what the simulated server has, exactly."""
        verdict = SGLang(method=self._bring).fit(self._real(command), arms, self.scene(command, scene))
        if verdict is None or scene.log is not None:
            return verdict
        told = "the server is simulated: it has what is estimated here, to the token"
        exact = tuple(self._exact(command, each) for each in verdict.arms)
        return replace(verdict, arms=exact, assumptions=(*verdict.assumptions, told))

    def scene(self, command: Sequence[str], scene: FitScene) -> FitScene:
        """A host with the files and the cards that are simulated."""
        from draftmark.sim.memory import read_file

        words = place_of(command).words
        return replace(
            scene,
            read=read_file,
            gpus=lambda: (cards_of(words.gpus).gpu,),
            version=words.version,
            model_dir=model_of(words.model).path,
        )

    def _exact(self, command: Sequence[str], arm: FitArm) -> FitArm:
        """The verdict without what may be off in life."""
        from draftmark.sim.memory import memory_of

        words: Words = place_of(self.with_arm(command, arm.arm)).words
        model, cards = model_of(words.model), cards_of(words.gpus)
        memory = memory_of(command_of(words, model, cards), model, cards, words.version)
        pools = memory.pools
        figures = FitFigures()
        if memory.starts:
            figures = FitFigures(
                kv_tokens=pools.tokens, max_running_requests=pools.running, state_slots=pools.slots
            )
        return replace(arm, fits=memory.starts, figures=figures, low=figures, high=figures)

    def summary(self, command: Sequence[str]) -> dict[str, str]:
        """As SGLang's, and that it is none."""
        sglang, real = self.stands_for(command)
        words = place_of(command).words
        return {**sglang.summary(real), "simulated": f"{words.model} on {words.gpus}"}

    def drain(self, command: Sequence[str]) -> DrainFacts:
        """As SGLang's, as much faster as `--speed` says."""
        sglang, real = self.stands_for(command)
        facts = sglang.drain(real)
        speed = place_of(command).words.speed
        worst = facts.worst_s if facts.worst_s is None else max(2.0, facts.worst_s / speed)
        return replace(facts, worst_s=worst)

    def hazards(self, command: Sequence[str]) -> list[dict[str, str]]:
        """As SGLang's."""
        sglang, real = self.stands_for(command)
        return sglang.hazards(real)

    def cpu_bound(self, command: Sequence[str]) -> bool | None:  # noqa: ARG002 - whatever it simulates
        """It waits more than it computes."""
        return False

    def gpus(self, command: Sequence[str]) -> int | None:  # noqa: ARG002 - whatever it simulates
        """None: its cards are simulated."""
        return 0

    def with_port(self, command: Sequence[str], port: int) -> tuple[str, ...]:
        """A flag of SGLang's, of which the last counts."""
        place = place_of(command)
        return place.with_flags((*place.flags, "--port", str(port)))

    def headers(self, command: Sequence[str]) -> dict[str, str]:
        """As SGLang's."""
        sglang, real = self.stands_for(command)
        return sglang.headers(real)
