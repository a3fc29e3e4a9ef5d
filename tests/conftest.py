"""What all tests rely on, however they were started."""

from __future__ import annotations

import signal

# A run in the background (`make test &`, some CI) has SIGINT ignored, and hands that down: tests of Ctrl-C would
# wait for what never comes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
