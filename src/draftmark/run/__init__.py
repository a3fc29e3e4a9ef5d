"""The run directory: append-only records, resume, re-derivation."""
