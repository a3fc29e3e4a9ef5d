"""A simulated server: SGLang's flags, HTTP and log by version, real memory arithmetic, no GPU. `docs/sim.md`."""
