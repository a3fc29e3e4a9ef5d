"""The systemd supervisor: a unit is read, changed by one drop-in, started, stopped, and put back."""
