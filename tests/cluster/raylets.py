"""A real Ray cluster of several raylets on one computer: `python raylets.py TMPDIR HEAD PACE…`.

A head, and a node of one CPU for each pace. HEAD is the head's own pace, or `-` for one that runs nothing. Prints
one JSON line when it is up: `address` and `nodes` (ids, in order; a head that runs trials comes last). Commands on
stdin: `kill NUMBER`, answered by a line. The end of stdin is its end.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

STORE_BYTES = 80 << 20
# A node whose process is gone refuses each question at once: no need to ask five times, 3 s apart, as Ray does.
SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}


def main(directory: str, head_pace: str, paces: list[str]) -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints is no answer
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    def node(pace: str) -> dict[str, Any]:
        env = {"PACE": pace, "TMPDIR": directory}
        return {"num_cpus": 0 if pace == "-" else 1, "object_store_memory": STORE_BYTES, "env_vars": env}

    own: dict[str, Any] = {"include_dashboard": False, "no_monitor": True, "_system_config": SOON}
    cluster = Cluster(initialize_head=True, head_node_args={**node(head_pace), **own})
    nodes = [cluster.add_node(wait=False, **node(pace)) for pace in paces]
    cluster.wait_for_nodes(timeout=120)
    every = nodes if head_pace == "-" else [*nodes, cluster.head_node]
    print(json.dumps({"address": cluster.address, "nodes": [each.node_id for each in every]}), file=out)
    try:
        for line in sys.stdin:
            cluster.remove_node(nodes[int(line.split()[1])], allow_graceful=False)
            print("{}", file=out)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
