"""`python -m tests.lab [--mode ns|uml] [--repeat N] [NAME …]`: all deaths, or those named, a line each.

Exit status 1 when one is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time

from .deaths import DEATHS
from .expect import wrong_answers, wrong_evidence
from .machine import Machine, Mode
from .packages import UnavailableError
from .play import USERS, has_judge, play


def main() -> int:
    """Play them."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="Deaths of units in a real systemd.")
    parser.add_argument("--mode", choices=list(Mode), type=Mode, action="append")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("name", nargs="*", help=", ".join(death.name for death in DEATHS))
    options = parser.parse_args()
    return (
        sum(_session(mode, options.name) for mode in options.mode or list(Mode) for _ in range(options.repeat)) > 0
    )


def _session(mode: Mode, names: list[str]) -> int:
    began = time.monotonic()
    try:
        machine = Machine.boot(mode)
    except UnavailableError as reason:
        print(f"{mode}: not played: {reason}")
        return 0
    print(f"{mode}: booted in {time.monotonic() - began:.1f} s", flush=True)
    wrong = 0
    try:
        users = USERS if has_judge() else ()
        for death in DEATHS:
            if mode in death.modes and (not names or death.name in names):
                played = play(machine, death, users=users)
                faults = wrong_evidence(played)
                said = []
                for user in users:
                    faults += [f"{user}: {fault}" for fault in wrong_answers(played, user)]
                    document = played.answers[user].document or {}
                    said.append(f"{user}: {document.get('cause')} ({document.get('confidence')})")
                wrong += len(faults)
                print(f"{mode} {death.name:22} {played.seconds:5.1f} s  {'; '.join(said)}", flush=True)
                for fault in faults:
                    print(f"    WRONG {fault}", flush=True)
    finally:
        machine.close()
    print(f"{mode}: {time.monotonic() - began:.1f} s in all, {wrong} wrong", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
