"""One SSH connection that is kept: made hop by hop, watched, and made again when lost. Runs in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import asyncssh

from draftmark.errors import HostError
from draftmark.service.ssh_destination import Destination, parse_jumps
from draftmark.service.ssh_errors import connect_error, host_key_error, permission_error
from draftmark.service.ssh_proxy import Proxy
from draftmark.service.ssh_trust import HostKeys, Witness

_MOST_JUMPS = 8
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 4.0)
_CLOSE_S = 2.0
_STILL_AWAY_S = 5.0  # for a host that has stayed away for `reconnect_s` already: many callers in a row ask for it
_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_CONFIG_ERRORS = (asyncssh.ConfigParseError, asyncssh.IllegalUserName)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How patient a connection is.

    Attributes:
        connect_s: For one connection to be made, where the configuration has no ConnectTimeout.
        reconnect_s: For how long a lost connection is tried again, by whoever asks for it first.
        keepalive_s: Silence after which the server is asked whether it is there.
        keepalive_count: Questions without an answer after which the connection is lost.
        on_wait: Is told, in a sentence, what is waited for; from the thread of the connection.
    """

    connect_s: float = 30.0
    reconnect_s: float = 30.0
    keepalive_s: float = 3.0
    keepalive_count: int = 3
    on_wait: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class _Configured:
    """What the user's SSH configuration says of a destination."""

    jumps: tuple[Destination, ...]
    keys: HostKeys
    identities: tuple[str, ...]
    identities_only: bool
    connect_s: float | None
    proxy_command: str | None


class Link:
    """The connection to one destination, and those to the jump hosts before it."""

    def __init__(self, destination: Destination, settings: LinkSettings) -> None:
        self.destination = destination
        self.settings = settings
        self._hops: list[asyncssh.SSHClientConnection] = []
        self._proxies: list[Proxy] = []
        self._lock = asyncio.Lock()
        self._closed = False
        self._given_up = False

    @property
    def alive(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return bool(self._hops) and not self._hops[-1].is_closed()

    async def connect(self) -> None:
        """Make the connection, once.

        Raises:
            RefusedError: A host key is not known, or not the one that is known.
            HostError: It cannot be made.
            UsageError: A jump host of the configuration cannot be read.
        """
        async with self._lock:
            await self._connect()

    async def connection(self) -> asyncssh.SSHClientConnection:
        """The connection, made again if it was lost.

        Raises:
            RefusedError: As for `connect`.
            HostError: It cannot be made, or not within `reconnect_s`; once that has been so, it is tried for a
                shorter time.
        """
        async with self._lock:
            if not self.alive:
                await self._reconnect()
            return self._hops[-1]

    async def _reconnect(self) -> None:
        loop = asyncio.get_running_loop()
        longest = self.settings.reconnect_s
        deadline = loop.time() + (min(_STILL_AWAY_S, longest) if self._given_up else longest)
        pauses = itertools.chain(_BACKOFF_S, itertools.repeat(_BACKOFF_S[-1]))
        while not self.alive:
            if self._closed:
                raise HostError(f"the connection to {self.destination} is closed")
            try:
                await self._connect_by(deadline)
            except HostError as error:
                pause = next(pauses)
                left = deadline - loop.time() - pause
                if left <= 0 or isinstance(error.__cause__, (asyncssh.PermissionDenied, *_CONFIG_ERRORS)):
                    self._given_up = True
                    raise
                if self.settings.on_wait is not None:
                    self.settings.on_wait(f"{error.what}; trying again for {left:.0f} s")
                await asyncio.sleep(pause)
        self._given_up = False

    async def _connect_by(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout_at(deadline):
                await self._connect()
        except TimeoutError as error:
            raise connect_error(self.destination, error, loop.time() - began) from error

    async def _connect(self) -> None:
        await self._drop()
        try:
            await self._walk(self.destination, None, depth=0)
        except BaseException:
            await self._drop()
            raise

    async def _walk(self, target: Destination, via: asyncssh.SSHClientConnection | None, depth: int) -> None:
        """Open the connection to `target`, those to its jump hosts first unless it is reached `via` one."""
        if depth > _MOST_JUMPS:
            raise HostError(
                f"ProxyJump leads to {target} again and again",
                next_step="correct it in ~/.ssh/config: a jump host needs `ProxyJump none`",
            )
        configured = await self._configured(target)
        for number, jump in enumerate(configured.jumps if via is None else ()):
            await self._walk(jump, self._hops[-1] if number else None, depth + 1)
        if via is not None or configured.jumps:
            via = self._hops[-1]
        self._hops.append(await self._open(target, configured, via))

    async def _configured(self, target: Destination) -> _Configured:
        """Read the user's configuration, and the system's.

        Raises:
            HostError: A line of it cannot be read.
            UsageError: ProxyJump names what is no host.
        """
        try:
            options = await asyncssh.SSHClientConnectionOptions.construct(
                config=_config_files(), host=target.host, client_keys=None, known_hosts=None, **_named(target)
            )
        except (ValueError, KeyError, OSError, asyncssh.Error) as error:
            raise connect_error(target, error, 0) from error
        config = options.config
        jump = config.get("ProxyJump")
        return _Configured(
            parse_jumps(str(jump)) if jump else (),
            HostKeys(
                cast("list[str] | None", config.get("UserKnownHostsFile")),
                cast("list[str] | None", config.get("GlobalKnownHostsFile")),
                options.host_key_alias,
            ),
            tuple(cast("list[str]", config.get("IdentityFile", []))),
            bool(config.get("IdentitiesOnly")),
            options.connect_timeout,
            cast("str | None", config.get("ProxyCommand")),
        )

    async def _open(
        self, target: Destination, configured: _Configured, via: asyncssh.SSHClientConnection | None
    ) -> asyncssh.SSHClientConnection:
        witness = Witness()
        try:
            return await self._dial(target, configured, via, witness)
        except (asyncssh.KeyExchangeFailed, asyncssh.ConnectionLost, ConnectionResetError) as error:
            if configured.keys.known and witness.shown is None:
                # Has it no key of the kinds that are known? Whichever it has is shown now, and refused.
                with contextlib.suppress(OSError, ValueError, asyncssh.Error):
                    (await self._dial(target, configured, via, witness, algorithms="default")).abort()
            if witness.shown is not None:
                raise host_key_error(target, configured.keys, witness, error) from error
            raise connect_error(target, error, 0, self._proxy_said()) from error
        except asyncssh.HostKeyNotVerifiable as error:
            raise host_key_error(target, configured.keys, witness, error) from error
        except asyncssh.PermissionDenied as error:
            raise permission_error(target, configured.identities, witness, error) from error
        except (OSError, ValueError, asyncssh.Error) as error:
            patience = configured.connect_s or self.settings.connect_s
            raise connect_error(target, error, patience, self._proxy_said()) from error

    async def _dial(
        self,
        target: Destination,
        configured: _Configured,
        via: asyncssh.SSHClientConnection | None,
        witness: Witness,
        algorithms: str = "",
    ) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            target.host,
            config=_config_files(),
            tunnel=via,
            sock=self._proxy(configured.proxy_command) if via is None else None,
            proxy_command=None,
            client_factory=lambda: witness,
            known_hosts=configured.keys,
            server_host_key_algs=algorithms or (),
            client_keys=_usable(configured.identities, public=configured.identities_only) or (),
            ignore_encrypted=True,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            agent_forwarding=False,
            connect_timeout=configured.connect_s or self.settings.connect_s,
            keepalive_interval=self.settings.keepalive_s,
            keepalive_count_max=self.settings.keepalive_count,
            **_named(target),
        )

    def _proxy(self, command: str | None) -> socket.socket | None:
        if command is None:
            return None
        self._proxies.append(Proxy(command))
        return self._proxies[-1].socket

    def _proxy_said(self) -> tuple[str, ...]:
        return self._proxies[-1].said() if self._proxies else ()

    async def _drop(self) -> None:
        """Close what is open, the destination first; a server that does not answer is left."""
        hops, self._hops = self._hops, []
        for connection in reversed(hops):
            connection.close()
            try:
                await asyncio.wait_for(connection.wait_closed(), _CLOSE_S)
            except TimeoutError:
                connection.abort()
                await connection.wait_closed()
        while self._proxies:
            self._proxies.pop().close()

    async def close(self) -> None:
        """End it for good."""
        self._closed = True
        async with self._lock:
            await self._drop()


def _config_files() -> list[str]:
    """Those that there are; the first that sets an option wins."""
    files = (Path.home() / ".ssh" / "config", _SYSTEM_CONFIG)
    return [str(path) for path in files if path.is_file()]


def _named(target: Destination) -> dict[str, object]:
    """User and port, where they are not left to the configuration."""
    given = {"username": target.user, "port": target.port}
    return {name: value for name, value in given.items() if value is not None}


def _usable(identities: tuple[str, ...], *, public: bool) -> list[str]:
    """Key files that can be loaded: `ssh` passes over the others, asyncssh would stop at them.

    Args:
        identities: IdentityFile.
        public: Public keys count as well: they say which keys of the agent are to be used.
    """
    found = []
    for name in identities:
        path = Path(name).expanduser()
        try:
            asyncssh.load_keypairs(str(path), ignore_encrypted=True)
        except (OSError, ValueError):
            if not (public and _is_public(path)):
                continue
        found.append(str(path))
    return found


def _is_public(path: Path) -> bool:
    try:
        asyncssh.read_public_key(path)
    except (OSError, ValueError):
        return False
    return True
