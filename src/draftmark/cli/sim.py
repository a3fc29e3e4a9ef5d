"""`draftmark sim`: a simulated server, in the foreground; its log on stderr."""

from __future__ import annotations

import argparse
import sys

from draftmark.sim.words import declare, words_of

_EPILOG = """\
draftmark sim --model qwen35-122b --gpus 4xrtx-pro-6000 -- --speculative-algorithm NEXTN \\
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
draftmark tune 'cmd:draftmark sim --model … -- …'      in the place of a real server
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser)
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Serve until something ends it."""
    from draftmark.sim.launcher import LauncherError
    from draftmark.sim.service import serve
    from draftmark.sim.setup import setup

    try:
        made = setup(words_of(args))
    except LauncherError as error:
        sys.stderr.write(error.said)
        return error.status
    return serve(made)
