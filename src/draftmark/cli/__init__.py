"""The command line: one module a verb. Parse, call, print; no logic."""
