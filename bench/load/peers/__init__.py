"""Who is measured: how each is installed, how it is asked, and where its figures stand. A table: add a row."""

from __future__ import annotations

from bench.load.peers import engines, own, suites
from bench.load.peers.model import Asked, Figures, Peer

__all__ = ["PEERS", "Asked", "Figures", "Peer", "chosen"]

PEERS = {peer.name: peer for peer in (*own.ROWS, *engines.ROWS, *suites.ROWS)}


def chosen(names: str) -> list[Peer]:
    """Peers by their names, in this order."""
    unknown = [name for name in names.split(",") if name not in PEERS]
    if unknown:
        raise SystemExit(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    return [PEERS[name] for name in names.split(",")]
