"""How a service is named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ServiceKind(StrEnum):
    """How a service is named on the command line."""

    UNIT = "unit"
    CMD = "cmd"
    DOCKER = "docker"
    URL = "url"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class ServiceRef:
    """A parsed service reference, such as `cmd:"llama-server -m x.gguf"`.

    Attributes:
        kind: The supervisor that runs it.
        target: Unit name, command line, container name or URL; empty for `embedded:`.
    """

    kind: ServiceKind
    target: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.target}"
