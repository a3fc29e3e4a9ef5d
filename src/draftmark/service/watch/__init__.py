"""A post-mortem whenever a unit fails: what is installed for it, where it is kept, and who is told."""
