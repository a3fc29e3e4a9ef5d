"""A real Ray cluster of several raylets on one computer, in a process of its own: `python raylets.py TMPDIR PACE…`.

A head that runs nothing, and a node of one CPU for each pace. Prints one JSON line when it is up: `address` and
`nodes` (ids, in order). Commands on stdin: `kill NUMBER`, answered by a line. The end of stdin is its end.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

STORE_BYTES = 80 << 20


def main(directory: str, paces: list[str]) -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints is no answer
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [
        cluster.add_node(
            wait=False, num_cpus=1, object_store_memory=STORE_BYTES, env_vars={"PACE": pace, "TMPDIR": directory}
        )
        for pace in paces
    ]
    cluster.wait_for_nodes(timeout=120)
    print(json.dumps({"address": cluster.address, "nodes": [node.node_id for node in nodes]}), file=out)
    try:
        for line in sys.stdin:
            cluster.remove_node(nodes[int(line.split()[1])], allow_graceful=False)
            print("{}", file=out)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
