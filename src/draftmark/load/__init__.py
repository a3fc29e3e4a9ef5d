"""The load generator: workloads, the client, and what it measured."""
