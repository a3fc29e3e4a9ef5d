"""CommandSupervisor keeps the contract of supervisors."""

from __future__ import annotations

from draftmark.ports import Supervisor
from draftmark.service.command import CommandSupervisor
from draftmark.testing.supervisor_contract import SupervisorContract


class TestCommandSupervisor(SupervisorContract):
    def make_supervisor(self, original: tuple[str, ...]) -> Supervisor:
        return CommandSupervisor(original, grace_s=self.grace_s, second_grace_s=self.second_grace_s)
