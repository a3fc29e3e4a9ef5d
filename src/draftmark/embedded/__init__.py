"""The engine and model that `tune` uses when no service is named."""
