"""A real sshd on a free port of the loopback, with keys and configuration of its own, as an ordinary process.

Started by root it has a mount namespace of its own, in which /etc/passwd is what a test wants it to be; processes
and files are this machine's. Where OpenSSH's server is not installed it is fetched and unpacked, never installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .packages import UnavailableError, cache

_CACHE = cache()  # before a test moves HOME
PACKAGES = ("openssh-server", "libwrap0")
_APT_S = 120
_START_S = 20.0
# Arguments: a folder with passwd and shadow, a folder that is laid over /etc and /usr or nothing, the command.
_IN_NAMESPACE = """
if [ "$2" ]; then
    for top in etc usr; do mount -t overlay -o "lowerdir=$2/$top:/$top" lab /$top || exit; done
fi
mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/shadow" /etc/shadow && mkdir -p /run/sshd || exit
shift 2
exec "$@"
"""


def unpacked(packages: Sequence[str], proof: str) -> Path:
    """A folder of the user's cache into which these packages are unpacked; `proof` is a path in it.

    Raises:
        UnavailableError: They cannot be had here.
    """
    folder = _CACHE / packages[0]
    if (folder / proof).exists():
        return folder
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UnavailableError(f"{packages[0]} is not installed, and there is no apt-get to fetch it")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{packages[0]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / proof).exists():
            part = _CACHE / f"{packages[0]}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _download(packages, part)
            for package in part.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, part], check=True)
                package.unlink()
            shutil.rmtree(folder, ignore_errors=True)
            part.rename(folder)
    return folder


def _download(packages: Sequence[str], folder: Path) -> None:
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", *packages]
    said = ""
    for before in ((), ("apt-get", "-o", "DPkg::Lock::Timeout=60", "update", "-qq")):
        try:
            if before:  # no package lists yet, or old ones
                subprocess.run(before, stdin=subprocess.DEVNULL, capture_output=True, timeout=_APT_S, check=False)
            ended = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_APT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"apt-get took more than {_APT_S} s") from None
        if ended.returncode == 0:
            return
        said = ended.stderr.decode(errors="replace").strip()
    raise UnavailableError(
        f"apt-get could not fetch {', '.join(packages)}: {(said or 'no output').splitlines()[-1]}"
    )


def _program() -> tuple[Path, dict[str, str]]:
    """The server, and what its environment needs."""
    installed = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if installed is not None:
        return Path(installed), {}
    folder = unpacked(PACKAGES, "usr/sbin/sshd")
    libraries = ":".join(str(path) for path in sorted(folder.glob("usr/lib/*-linux-gnu")))
    return folder / "usr/sbin/sshd", {"LD_LIBRARY_PATH": libraries}


def keygen(path: Path, *options: str, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A key pair; `options` are more of ssh-keygen's."""
    if shutil.which("ssh-keygen") is None:
        raise UnavailableError("OpenSSH's client is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "lab", "-f", str(path), *options]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


class Sshd:
    """One server, from its start to `close`; it does not outlive this process.

    Attributes:
        port: Where it listens, on 127.0.0.1.
        folder: Its keys, its configuration, its log.
    """

    def __init__(
        self, folder: Path, options: Sequence[str] = (), users: Sequence[str] = (), over: Path | None = None
    ) -> None:
        """Start it.

        Args:
            folder: For its files; `authorized_keys` in it says who may log in.
            options: Lines for its configuration, before its own: the first counts.
            users: Lines for /etc/passwd, where this process is root.
            over: Its `etc` and `usr` are laid over those of this machine, where this process is root.

        Raises:
            UnavailableError: It cannot be had here.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.host_key = folder / "host_key"
        if not self.host_key.exists():
            keygen(self.host_key)
        self.authorized = folder / "authorized_keys"
        self.authorized.touch()
        self.port = _free_port()
        self.configuration = folder / "sshd_config"
        self.configuration.write_text("\n".join((*options, *self._lines())) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self._users = users
        self._over = over
        self.start()

    def _lines(self) -> Iterator[str]:
        yield f"ListenAddress 127.0.0.1:{self.port}"
        yield f"HostKey {self.host_key}"
        yield f"AuthorizedKeysFile {self.authorized}"
        yield "PidFile none"
        yield "UsePAM no"
        yield "StrictModes no"
        yield "PermitRootLogin yes"
        yield "PasswordAuthentication no"
        yield "KbdInteractiveAuthentication no"
        yield "MaxStartups 200"
        yield "LogLevel VERBOSE"

    def start(self) -> None:
        """Start it, again on the same port."""
        program, environment = _program()
        command = [str(program), "-D", "-e", "-f", str(self.configuration)]
        if shutil.which("setpriv") is not None:
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        if os.geteuid() == 0:
            command = [
                "unshare",
                "-m",
                "--propagation",
                "private",
                "sh",
                "-c",
                _IN_NAMESPACE,
                "sh",
                str(self._accounts()),
                str(self._over or ""),
                *command,
            ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        while not _listens(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise UnavailableError(f"sshd does not start here: {self.log().strip()[-300:]}")
            time.sleep(0.02)

    def _accounts(self) -> Path:
        named = {line.partition(":")[0] for line in self._users} | {"sshd"}
        lines = [
            line for line in Path("/etc/passwd").read_text().splitlines() if line.partition(":")[0] not in named
        ]
        added = ["sshd:x:29999:65534::/run/sshd:/usr/sbin/nologin", *self._users]
        (self.folder / "passwd").write_text("\n".join((*lines, *added)) + "\n")
        names = [line.partition(":")[0] for line in (*lines, *added)]
        (self.folder / "shadow").write_text("".join(f"{name}:*:20000:0:99999:7:::\n" for name in names))
        return self.folder

    def log(self) -> str:
        """What it wrote so far."""
        return (self.folder / "log").read_text(errors="replace")

    def authorise(self, key: Path, options: str = "") -> None:
        """Let a key in."""
        with self.authorized.open("a") as file:
            file.write(f"{options} {key.with_suffix('.pub').read_text()}".lstrip())

    def known_as(self, *names: str) -> str:
        """Its line for known_hosts; its address and port where no name is given."""
        return f"{','.join(names) or f'[127.0.0.1]:{self.port}'} {self.host_key.with_suffix('.pub').read_text()}"

    def connections(self) -> list[int]:
        """Its processes that serve a connection."""
        assert self._process is not None
        return [pid for pid in _descendants(self._process.pid) if _name(pid).startswith("sshd")]

    def signal_connections(self, signum: signal.Signals) -> None:
        """To all of them."""
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def cut(self) -> None:
        """Kill the server with all its connections; what they run is left to itself."""
        self.signal_connections(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End it. Connections go on: `cut` ends them, too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def user() -> str:
    """Who this process is."""
    return pwd.getpwuid(os.geteuid()).pw_name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in map(int, children) for found in (child, *_descendants(child))]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
