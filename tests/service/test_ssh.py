"""A host behind SSH beyond the contract: how it is reached, whom it trusts, what is left when something breaks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.lab.ssh_client import SshLab, ssh_lab
from tests.lab.sshd import keygen

from draftmark.errors import HostError, RefusedError, UsageError
from draftmark.service.ssh import SshHost
from draftmark.testing.host_contract import Echo, gone, received

PATIENCE_S = 30.0
QUICK = {"keepalive_s": 0.3, "keepalive_count": 2}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SshLab]:
    yield from ssh_lab(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left_here() -> Iterator[None]:
    """No thread outlives a test."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + PATIENCE_S
    while left := {
        thread for thread in set(threading.enumerate()) - before if not thread.name.startswith("asyncio_")
    }:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def refused(destination: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        SshHost.connect(destination).close()
    assert caught.value.exit_status == 30
    return caught.value


def failed(destination: str, **options: float) -> HostError:
    with pytest.raises(HostError) as caught:
        SshHost.connect(destination, **options).close()  # type: ignore[arg-type]
    assert caught.value.next_step
    return caught.value


def fingerprint(key: Path) -> str:
    said = subprocess.run(["ssh-keygen", "-l", "-f", key], check=True, capture_output=True, text=True).stdout
    return said.split()[1]


# --- whom it trusts -----------------------------------------------------------------------------------------


def test_an_unknown_host_key_is_refused_with_fingerprint_and_command(lab: SshLab) -> None:
    lab.known_hosts.unlink()
    error = refused(lab.destination)
    assert "not known" in error.what
    assert fingerprint(lab.server.host_key) in "\n".join(error.evidence)
    assert f"`ssh -p {lab.server.port} {lab.login}@127.0.0.1 true`" in error.next_step
    assert not lab.known_hosts.exists()


@pytest.mark.parametrize(
    "lines",
    [
        ("StrictHostKeyChecking no",),
        ("StrictHostKeyChecking accept-new",),
        ("UserKnownHostsFile none", "GlobalKnownHostsFile none"),
        ("UserKnownHostsFile /dev/null", "StrictHostKeyChecking off"),
    ],
)
def test_no_configuration_makes_it_accept_an_unknown_key(lab: SshLab, lines: tuple[str, ...]) -> None:
    lab.known_hosts.write_text("")
    lab.configure(*lines)
    assert "not known" in refused(lab.destination).what


def test_a_changed_host_key_is_refused_with_both_fingerprints(lab: SshLab, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    lab.known_hosts.write_text(f"[127.0.0.1]:{lab.server.port} {other.with_suffix('.pub').read_text()}")
    before = lab.known_hosts.read_bytes()
    error = refused(lab.destination)
    assert "changed" in error.what
    shown, known = error.evidence
    assert fingerprint(lab.server.host_key) in shown
    assert fingerprint(other) in known
    assert f"ssh-keygen -R '[127.0.0.1]:{lab.server.port}'" in error.next_step
    assert lab.known_hosts.read_bytes() == before


def test_a_key_of_another_kind_than_the_known_one_is_a_changed_key(lab: SshLab, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other", kind="ecdsa")
    lab.known_hosts.write_text(f"[127.0.0.1]:{lab.server.port} {other.with_suffix('.pub').read_text()}")
    error = refused(lab.destination)
    assert "changed" in error.what
    assert fingerprint(lab.server.host_key) in error.evidence[0]


def test_a_revoked_host_key_is_refused(lab: SshLab) -> None:
    line = lab.server.known_as()
    lab.known_hosts.write_text(f"{line}@revoked {line}")
    assert "revoked" in refused(lab.destination).what


def test_a_hashed_known_hosts_file_is_read_and_bad_lines_are_passed_over(lab: SshLab) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", lab.known_hosts], check=True, capture_output=True)
    lab.known_hosts.write_text("nonsense\n@what is this\n|1|broken x\n" + lab.known_hosts.read_text())
    assert "127.0.0.1" not in lab.known_hosts.read_text()
    with SshHost.connect(lab.destination) as host:
        assert host.run(["true"]).ok


def test_a_host_certificate_is_trusted_by_its_authority_only(lab: SshLab, tmp_path: Path) -> None:
    authority = keygen(tmp_path / "ca")
    server = lab.add("certified")
    server.close()
    sign: list[str | Path] = [
        "ssh-keygen",
        "-q",
        "-s",
        authority,
        "-I",
        "lab",
        "-h",
        "-n",
        "127.0.0.1",
        server.host_key,
    ]
    subprocess.run(sign, check=True)
    with server.configuration.open("a") as file:
        file.write(f"HostCertificate {server.host_key}-cert.pub\n")
    server.start()
    lab.known_hosts.write_text(f"@cert-authority [127.0.0.1]:* {authority.with_suffix('.pub').read_text()}")
    destination = f"{lab.login}@127.0.0.1:{server.port}"
    with SshHost.connect(destination) as host:
        assert host.run(["true"]).ok
    lab.known_hosts.write_text("")
    error = refused(destination)
    assert "authority" in error.evidence[0]
    assert fingerprint(authority) in error.evidence[0]


# --- how it is let in ---------------------------------------------------------------------------------------


@contextmanager
def agent(folder: Path) -> Iterator[str]:
    """A real ssh-agent."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("OpenSSH's client is not installed")
    address = str(folder / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", address], stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not Path(address).exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield address
        finally:
            process.kill()


def test_the_agent_is_asked(lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent(tmp_path) as address:
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        subprocess.run(["ssh-add", "-q", lab.key], check=True, env={**os.environ})
        lab.key.unlink()
        with SshHost.connect(lab.destination) as host:
            assert host.run(["true"]).ok


def test_a_key_with_a_passphrase_is_opened_by_the_agent_only(
    lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", lab.key], check=True, capture_output=True)
    error = failed(lab.destination)
    assert "does not let us in" in error.what
    assert f"{lab.key}: has a passphrase, and nobody is asked for it here" in error.evidence
    assert f"ssh-add {lab.key}" in error.next_step
    ask = tmp_path / "ask"
    ask.write_text("#!/bin/sh\necho secret\n")
    ask.chmod(0o755)
    with agent(tmp_path) as address:
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        environment = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":"}
        subprocess.run(["ssh-add", "-q", lab.key], check=True, env=environment, stdin=subprocess.DEVNULL)
        lab.configure("Host *", f"  IdentityFile {lab.key}", "  IdentitiesOnly yes")
        with SshHost.connect(lab.destination) as host:
            assert host.run(["true"]).ok


def test_who_is_not_let_in_is_told_what_was_tried(lab: SshLab) -> None:
    lab.server.authorized.write_text("")
    error = failed(lab.destination, reconnect_s=0)
    assert "does not let us in" in error.what
    assert any("agent: none" in line for line in error.evidence)
    assert "ssh -o BatchMode=yes" in error.next_step


def test_nobody_is_asked_for_a_password(lab: SshLab) -> None:
    asking = lab.add("asking", ("PasswordAuthentication yes", "KbdInteractiveAuthentication yes"))
    asking.authorized.write_text("")
    lab.known_hosts.write_text(asking.known_as())
    assert "does not let us in" in failed(f"{lab.login}@127.0.0.1:{asking.port}").what


# --- what the configuration says ----------------------------------------------------------------------------


def test_an_alias_of_the_configuration(lab: SshLab) -> None:
    moved = lab.key.rename(lab.dot_ssh / "another name")
    known = lab.known_hosts.rename(lab.dot_ssh / "others")
    (lab.dot_ssh / "more").write_text(f"Match originalhost gpu1\n  User {lab.login}\n")
    lab.configure(
        "Include more",
        "Host gpu*",
        "  HostName 127.0.0.1",
        f"  Port {lab.server.port}",
        f"  IdentityFile ~/.ssh/missing\n  IdentityFile '{moved}'",
        f"  UserKnownHostsFile ~/.ssh/nothing {known}",
    )
    with SshHost.connect("gpu1") as host:
        assert host.name == "gpu1"
        assert host.run(["true"]).ok
    lab.configure("Host gpu1", "  HostName 127.0.0.1", f"  Port {lab.server.port}", f"  IdentityFile '{moved}'")
    assert "`ssh gpu1 true`" in refused("gpu1").next_step


def test_the_destination_wins_over_the_configuration(lab: SshLab) -> None:
    lab.configure("Host *", "  User nobody-at-all", "  Port 1")
    with SshHost.connect(lab.destination) as host:
        assert host.run(["true"]).ok


def test_a_host_key_alias(lab: SshLab) -> None:
    lab.known_hosts.write_text(lab.server.known_as("the-gpu"))
    assert "not known" in refused(lab.destination).what
    lab.configure("Host *", "  HostKeyAlias the-gpu")
    with SshHost.connect(lab.destination) as host:
        assert host.run(["true"]).ok


def test_through_a_jump_host(lab: SshLab) -> None:
    """By configuration; each host's key is checked, and an error says which of them it is about."""
    jump = lab.add("jump")
    lab.known_hosts.write_text(lab.server.known_as() + jump.known_as())
    lab.configure(
        "Host inner",
        "  HostName 127.0.0.1",
        f"  Port {lab.server.port}",
        f"  User {lab.login}",
        "  ProxyJump door",
        "Host door",
        "  HostName 127.0.0.1",
        f"  Port {jump.port}",
        f"  User {lab.login}",
    )
    with SshHost.connect("inner") as host:
        assert host.run(["cat"], input=b"x" * 100_000).stdout == b"x" * 100_000
        assert len(jump.connections()) > 0
        with closing(Echo()) as echo, socket.create_connection(host.reach("127.0.0.1", echo.port)) as connection:
            connection.sendall(b"through")
            connection.shutdown(socket.SHUT_WR)
            assert received(connection) == b"throughend"
    lab.known_hosts.write_text(lab.server.known_as())
    error = refused("inner")
    assert "the host key of door is not known" in error.what
    assert "`ssh door true`" in error.next_step
    lab.known_hosts.write_text(jump.known_as())
    assert "the host key of inner is not known" in refused("inner").what
    lab.server.cut()
    lab.known_hosts.write_text(lab.server.known_as() + jump.known_as())
    assert "the jump host cannot connect to inner" in failed("inner").what


def test_a_jump_host_that_jumps_over_itself(lab: SshLab) -> None:
    lab.configure("Host *", "  ProxyJump door")
    assert "again and again" in failed("inner").what


def test_a_proxy_command(lab: SshLab) -> None:
    script = lab.folder / "proxy.py"
    script.write_text(
        "import os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536):\n"
        "        s.sendall(data)\n"
        "    s.shutdown(socket.SHUT_WR)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536):\n"
        "    os.write(1, data)\n"
    )
    lab.configure("Host *", f"  ProxyCommand {sys.executable} {script} %h %p")
    with SshHost.connect(lab.destination) as host:
        assert host.run(["true"]).ok


@pytest.mark.parametrize("line", ["Port many", "Match sometimes", "Host 'open"])
def test_a_configuration_that_cannot_be_read(lab: SshLab, line: str) -> None:
    lab.configure("# a comment", line)
    error = failed(lab.destination)
    assert error.what == "the SSH configuration cannot be read"
    assert "line 2" in error.evidence[0]


# --- what is not there --------------------------------------------------------------------------------------


def test_a_name_that_does_not_exist(lab: SshLab) -> None:
    assert failed("no-such-host.invalid").what == "no host is named no-such-host.invalid"


def test_a_port_where_nothing_listens(lab: SshLab) -> None:
    lab.server.cut()
    assert "refuses the connection" in failed(lab.destination).what


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_that_is_none_of_ssh(lab: SshLab, words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(words)
                connection.recv(1)
                time.sleep(0 if words else 2)

        thread = threading.Thread(target=answer)
        thread.start()
        error = failed(f"127.0.0.1:{listener.getsockname()[1]}", connect_s=1)
        assert ("does not answer within 1 s" in error.what) == (not words)
        thread.join()


def test_asyncssh_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("draftmark.service.ssh_")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(UsageError) as caught:
        SshHost.connect("gpu1")
    assert caught.value.next_step == "pip install 'draftmark[ssh]'"


def test_a_login_that_runs_no_commands(lab: SshLab) -> None:
    lab.server.authorized.write_text("")
    lab.server.authorise(lab.key, 'command="echo only this"')
    error = failed(lab.destination)
    assert "did not run a command, but something else" in error.what
    assert "only this" in error.evidence


def test_a_server_that_forwards_nothing(lab: SshLab) -> None:
    shut = lab.add("shut", ("AllowTcpForwarding no",))
    lab.known_hosts.write_text(shut.known_as())
    with SshHost.connect(f"{lab.login}@127.0.0.1:{shut.port}") as host:
        with pytest.raises(HostError) as caught:
            host.reach("127.0.0.1", 1)
        assert "AllowTcpForwarding" in caught.value.next_step


def test_a_server_with_few_sessions(lab: SshLab) -> None:
    few = lab.add("few", ("MaxSessions 2",))
    lab.known_hosts.write_text(few.known_as())
    with SshHost.connect(f"{lab.login}@127.0.0.1:{few.port}") as host:
        said: list[bytes] = []
        threads = [threading.Thread(target=lambda: said.append(host.run(["echo", "x"]).stdout)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert said == [b"x\n"] * 20


# --- the login shell ----------------------------------------------------------------------------------------


def test_what_start_up_files_of_the_shell_print_is_not_the_command_s(lab: SshLab) -> None:
    bash = shutil.which("bash")
    if os.geteuid() != 0 or bash is None:
        pytest.skip("another login shell needs root, for an /etc/passwd of its own, and bash")
    home = lab.folder / "noisy"
    home.mkdir()
    (home / ".bashrc").write_text("echo hello; echo warning >&2; export TZ=Asia/Tokyo\n")
    server = lab.add("bash", users=(f"noisy:x:0:0::{home}:{bash}",))
    lab.known_hosts.write_text(server.known_as())
    with SshHost.connect(f"noisy@127.0.0.1:{server.port}") as host:
        ended = host.run(["sh", "-c", "echo $TZ; echo err >&2"])
        assert (ended.stdout, ended.stderr) == (b"UTC\n", "err\n")
        assert host.run(["no-such-program"]).missing


# --- what is left when something breaks ---------------------------------------------------------------------


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Run it beside; what it raises is put into the list."""
    raised: list[BaseException] = []

    def target() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    return thread, raised


def written(path: Path) -> list[int]:
    """The process numbers that a command writes there."""
    deadline = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_link_ends_a_command_here_and_there(lab: SshLab, tmp_path: Path, how: str) -> None:
    """And the next call connects again; a port of `reach` stays, and what was connected to it is reset."""
    pids = tmp_path / "pids"
    with closing(Echo()) as echo, SshHost.connect(lab.destination, **QUICK) as host:  # type: ignore[arg-type]
        where = host.reach("127.0.0.1", echo.port)
        with socket.create_connection(where, timeout=PATIENCE_S) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            script = f"sleep 600 & echo $! $$ > {pids}; wait"
            thread, raised = in_thread(lambda: host.run(["sh", "-c", script], timeout_s=600))
            left = written(pids)
            stopped = lab.server.connections()
            if how == "killed":
                lab.server.cut()
            else:
                lab.server.signal_connections(signal.SIGSTOP)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            (error,) = raised
            assert isinstance(error, HostError)
            assert "lost while a command ran" in error.what
            assert "sleep 600" in error.evidence[0]
            with pytest.raises(ConnectionError):
                received(connection)
        if how == "killed":
            assert all(gone(pid) for pid in left)
            lab.server.start()
        assert host.run(["echo", "again"]).stdout == b"again\n"
        assert host.reach("127.0.0.1", echo.port) == where
        with socket.create_connection(where, timeout=PATIENCE_S) as connection:
            connection.sendall(b"again")
            connection.shutdown(socket.SHUT_WR)
            assert received(connection) == b"againend"
        for pid in stopped if how == "stopped" else ():
            os.kill(pid, signal.SIGKILL)
        assert all(gone(pid) for pid in left)


def test_a_command_on_a_stuck_link_ends_by_the_other_side_s_own_limit(
    lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sshd stopped nobody there sees that the connection is lost."""
    from draftmark.service import ssh_command

    monkeypatch.setattr(ssh_command, "_SPARE_S", 0)
    pids = tmp_path / "pids"
    with SshHost.connect(lab.destination, **QUICK) as host:  # type: ignore[arg-type]
        command = ["sh", "-c", f"echo $$ > {pids}; sleep 600"]
        thread, _ = in_thread(lambda: host.run(command, timeout_s=2))
        left = written(pids)
        lab.server.signal_connections(signal.SIGSTOP)
        try:
            assert all(gone(pid) for pid in left)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        finally:
            lab.server.signal_connections(signal.SIGCONT)


def test_a_stream_says_that_the_link_was_lost(lab: SshLab) -> None:
    with SshHost.connect(lab.destination, **QUICK) as host:  # type: ignore[arg-type]
        stream = host.stream(["sh", "-c", "echo $$; sleep 600"])
        chunks = iter(stream)
        pid = int(next(chunks))
        lab.server.cut()
        with pytest.raises(HostError):
            list(chunks)
        assert stream.close().status is None
        assert gone(pid)


def test_half_an_input_starts_nothing(lab: SshLab, tmp_path: Path) -> None:
    """A file must not be cut short by a lost link."""
    with SshHost.connect(lab.destination, **QUICK) as host:  # type: ignore[arg-type]
        lab.server.signal_connections(signal.SIGSTOP)
        stopped = lab.server.connections()
        command = ["sh", "-c", f"cat > {tmp_path}/file"]
        thread, raised = in_thread(lambda: host.run(command, input=b"x" * 50_000_000, timeout_s=60))
        thread.join(PATIENCE_S)
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        assert not thread.is_alive()
        assert raised == [] or isinstance(raised[0], HostError)
    assert not (tmp_path / "file").exists() or (tmp_path / "file").stat().st_size == 50_000_000


def test_a_host_that_stays_away_is_an_error_in_time(lab: SshLab) -> None:
    waits: list[str] = []
    options = {**QUICK, "reconnect_s": 1.0}
    with SshHost.connect(lab.destination, on_wait=waits.append, **options) as host:  # type: ignore[arg-type]
        where = host.reach("127.0.0.1", 9)
        lab.server.cut()
        with pytest.raises(HostError) as caught:
            host.run(["true"])
        assert "refuses the connection" in caught.value.what
        assert waits
        assert "trying again" in waits[0]
        with pytest.raises(HostError):
            host.stream(["true"])
        with pytest.raises(HostError):
            host.read("/etc/hostname")
        with pytest.raises(OSError, match=r"."), socket.create_connection(where, timeout=PATIENCE_S) as connection:
            connection.recv(1)


def test_who_asks_again_for_a_host_that_stays_away_does_not_wait_as_long(
    lab: SshLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    options = {**QUICK, "reconnect_s": 1.0}
    with SshHost.connect(lab.destination, on_wait=waits.append, **options) as host:  # type: ignore[arg-type]
        monkeypatch.setattr("draftmark.service.ssh_link._STILL_AWAY_S", 0.1)
        lab.server.cut()
        with pytest.raises(HostError):
            host.run(["true"])
        assert waits
        waits.clear()
        with pytest.raises(HostError):
            host.run(["true"])
        assert waits == []
        lab.server.start()
        monkeypatch.undo()
        assert host.run(["true"]).ok


def test_a_host_key_that_changes_meanwhile_is_refused(lab: SshLab) -> None:
    with SshHost.connect(lab.destination, **QUICK) as host:  # type: ignore[arg-type]
        lab.server.cut()
        lab.server.host_key.unlink()
        keygen(lab.server.host_key)
        lab.server.start()
        with pytest.raises(RefusedError):
            host.run(["true"])


def test_ctrl_c_leaves_nothing_there(lab: SshLab, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with SshHost.connect(lab.destination) as host:

        def press() -> None:
            written(pids)
            signal.pthread_kill(main, signal.SIGINT)

        main = threading.get_ident()
        waiter = threading.Thread(target=press)
        waiter.start()
        with pytest.raises(KeyboardInterrupt):
            host.run(["sh", "-c", f"sleep 600 & echo $! $$ > {pids}; wait"], timeout_s=600)
        waiter.join()
        assert all(gone(pid) for pid in written(pids))
        assert host.run(["true"]).ok


def test_close_ends_what_runs_and_says_so_to_who_waits(lab: SshLab, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    host = SshHost.connect(lab.destination)
    thread, raised = in_thread(lambda: host.run(["sh", "-c", f"echo $$ > {pids}; sleep 600"], timeout_s=600))
    left = written(pids)
    host.close()
    thread.join(PATIENCE_S)
    assert isinstance(raised[0], HostError)
    assert all(gone(pid) for pid in left)
    host.close()
    with pytest.raises(HostError):
        host.run(["true"])
    with pytest.raises(HostError):
        host.reach("127.0.0.1", 1)


@pytest.mark.parametrize("end", ["", "import os; os.kill(os.getpid(), 9)", "raise SystemExit(0)"])
def test_an_interpreter_that_ends_without_close_leaves_nothing(lab: SshLab, tmp_path: Path, end: str) -> None:
    pids = tmp_path / "pids"
    code = (
        "import sys, threading, time, pathlib\n"
        "from draftmark.service.ssh import SshHost\n"
        f"host = SshHost.connect({lab.destination!r})\n"
        f"command = ['sh', '-c', 'sleep 600 & echo $! $$ > {pids}; wait']\n"
        "threading.Thread(target=lambda: host.run(command, timeout_s=600), daemon=True).start()\n"
        "host.reach('127.0.0.1', 9)\n"
        f"while not pathlib.Path({str(pids)!r}).exists(): time.sleep(0.01)\n"
        "time.sleep(0.1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code + end], capture_output=True, text=True, timeout=PATIENCE_S * 2, check=False
    )
    assert ended.stderr == ""
    assert all(gone(pid) for pid in written(pids))


def test_no_file_is_left_open(lab: SshLab) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    SshHost.connect(lab.destination).close()
    before = open_files()
    for _ in range(3):
        with SshHost.connect(lab.destination) as host:
            host.run(["true"])
            host.reach("127.0.0.1", 9)
            host.stream(["sleep", "600"])
    assert open_files() <= before


def test_the_login_line_is_read_alike_by_every_shell() -> None:
    """One word in single quotes, in which no shell sees anything special."""
    from draftmark.service.ssh_command import login_line, script

    line = login_line("draftmark-0", {"LC_ALL": "C", "SYSTEMD_PAGER": ""})
    before, word, after = line.split("'")
    assert not re.search(r"[!\\\n'`]", word)
    assert re.fullmatch(r"[\w =.-]*", before + after)
    assert script(["a\nb", "'\n'"], 3, 1).count(b"\n") == 1
