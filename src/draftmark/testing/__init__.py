"""Contract suites and fakes that any engine or supervisor must pass; shipped, so that others can use them."""
