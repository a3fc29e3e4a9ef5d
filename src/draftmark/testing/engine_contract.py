"""What any ports.Engine must pass. Subclass `EngineContract`, give it examples, and pytest runs the rest."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import pytest

from draftmark.errors import UsageError
from draftmark.model import Arm, Health, ServerLimits
from draftmark.ports import Engine


class EngineContract:
    """Contract suite of an engine.

    Attributes:
        commands: Command lines that start the engine, with the depth that each asks for.
        strangers: Command lines that do not.
        live_depths: Depths that are not refused on any of the commands.
        failures: (log lines, a part of the line that says why).
    """

    commands: Sequence[tuple[tuple[str, ...], int]] = ()
    strangers: Sequence[tuple[str, ...]] = ()
    live_depths: Sequence[int] = ()
    failures: Sequence[tuple[Sequence[str], str]] = ()

    @pytest.fixture
    def engine(self) -> Engine:
        """The engine under test."""
        raise AssertionError("give the suite an engine: override the fixture `engine`")

    def test_has_examples(self) -> None:
        """A suite without examples would pass whatever the engine does."""
        assert self.commands
        assert self.strangers
        assert self.live_depths
        assert self.failures

    def test_recognises_its_own_command_lines_only(self, engine: Engine) -> None:
        """Another program's command line is not ours to rewrite."""
        assert all(engine.recognises(command) for command, _ in self.commands)
        assert not any(engine.recognises(command) for command in self.strangers)

    def test_reads_the_depth_in_force(self, engine: Engine) -> None:
        """The baseline is the depth that runs today."""
        assert [engine.depth(command) for command, _ in self.commands] == [depth for _, depth in self.commands]

    def test_an_arm_has_the_depth_it_says(self, engine: Engine) -> None:
        """What is written is what is read back, from every starting point and back again."""
        for command, _ in self.commands:
            for depth in (0, *self.live_depths):
                once = engine.with_arm(command, Arm(depth))
                assert engine.depth(once) == depth, (command, depth)
                assert engine.with_arm(once, Arm(depth)) == once, (command, depth)
                assert engine.recognises(once)

    def test_an_arm_is_the_command_line_it_was_read_from(self, engine: Engine) -> None:
        """The baseline is what runs today, whatever beside the depth belongs to it."""
        for command, depth in self.commands:
            arm = engine.arm(command)
            assert arm.depth == depth
            assert engine.with_arm(command, arm) == command or depth == 0, command
            for other in (Arm(0), *map(Arm, self.live_depths)):
                assert engine.arm(engine.with_arm(command, other)) == other, (command, other)

    def test_an_adaptive_arm_is_read_back_as_it_was_written(self, engine: Engine) -> None:
        """Or the engine says that it has none."""
        for command, depth in self.commands:
            if not depth:
                continue
            try:
                arm = engine.adaptive(command)
            except UsageError:
                continue
            assert arm.knobs
            if engine.refuse(command, arm) is None:
                assert engine.arm(engine.with_arm(command, arm)) == arm, command

    def test_live_depths_are_not_refused(self, engine: Engine) -> None:
        """A refusal costs the user an arm, so it needs a reason."""
        for command, _ in self.commands:
            assert engine.refuse(command, Arm(0)) is None
            for depth in self.live_depths:
                assert engine.refuse(command, Arm(depth)) is None, (command, depth)

    def test_an_arm_does_not_move_the_server(self, engine: Engine) -> None:
        """Address and headers stay: clients and health checks keep working."""
        for command, _ in self.commands:
            for depth in (0, *self.live_depths):
                rewritten = engine.with_arm(command, Arm(depth))
                assert engine.base_url(rewritten) == engine.base_url(command)
                assert engine.headers(rewritten) == engine.headers(command)

    def test_on_another_port_it_is_the_same_server(self, engine: Engine) -> None:
        """Two nodes that share a computer do not share a port."""
        for command, depth in self.commands:
            moved = engine.with_port(command, 31007)
            assert urlsplit(engine.base_url(moved)).port == 31007
            assert urlsplit(engine.base_url(moved)).hostname == urlsplit(engine.base_url(command)).hostname
            assert engine.depth(moved) == depth
            assert engine.headers(moved) == engine.headers(command)
            assert engine.base_url(engine.with_arm(moved, Arm(0))) == engine.base_url(moved)

    def test_says_how_many_gpus_it_takes(self, engine: Engine) -> None:
        """None for as many as there are; and a depth takes no more of them."""
        for command, _ in self.commands:
            need = engine.gpus(command)
            assert need is None or need >= 0
            assert engine.gpus(engine.with_arm(command, Arm(0))) == need

    def test_words_of_others_stay_in_order(self, engine: Engine) -> None:
        """Switching off and on again never loses or reorders a word that is not speculation's."""
        for command, _ in self.commands:
            off = engine.with_arm(command, Arm(0))
            kept = [word for word in off if word in command]
            assert kept == [word for word in command if word in kept]
            assert off[0] == command[0]

    def test_failed_starts_have_a_decisive_line(self, engine: Engine) -> None:
        """The user reads one line, and it is the right one."""
        for lines, part in self.failures:
            found = engine.decisive(lines, "server.log")
            assert found is not None, part
            assert part in found.text
            assert found.line is not None
            assert lines[found.line - 1].rstrip() == found.text

    def test_a_silent_log_decides_nothing(self, engine: Engine) -> None:
        """No line, no claim."""
        assert engine.decisive([], "server.log") is None

    def test_nobody_there_is_unreachable(self, engine: Engine) -> None:
        """Health never raises."""
        client = engine.client("http://127.0.0.1:9", {})
        assert client.health() is Health.UNREACHABLE
        assert client.counters().output_tokens is None
        assert client.activity().running is None
        assert client.speculation().on is None
        assert client.limits() == ServerLimits()
        client.fresh()
