"""SGLang: so far what its log lines mean (`signs.toml`), for the post-mortem."""
