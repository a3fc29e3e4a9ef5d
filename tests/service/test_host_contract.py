"""Hosts keep the contract of hosts: this computer itself, and this computer behind an SSH server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab.ssh_client import SshLab, ssh_lab

from draftmark.ports import Host
from draftmark.service.local import LocalHost
from draftmark.service.ssh import SshHost
from draftmark.testing.host_contract import HostContract


class TestLocalHost(HostContract):
    @pytest.fixture
    def host(self) -> Host:
        return LocalHost()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    yield from ssh_lab(tmp_path_factory.mktemp("ssh"))


@pytest.fixture(scope="module")
def connected(lab: SshLab) -> Iterator[SshHost]:
    with SshHost.connect(lab.destination) as host:
        yield host


class TestSshHost(HostContract):
    @pytest.fixture
    def host(self, connected: SshHost) -> Host:
        return connected
