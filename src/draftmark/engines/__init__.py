"""One folder an engine: flags, log grammar, HTTP surface. Everything that depends on a version lives here."""
