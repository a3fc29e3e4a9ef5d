"""A real systemd to die in: booted by the tests themselves, as PID 1, on a throw-away copy of this machine's root.

    packages.py  fetches a kernel that runs as a process, and what else this machine lacks
    kernel.py    the system calls that Python has no names for
    cgroups.py   the control groups of a lab that shares this machine's kernel
    root.py      makes the lab's root out of an overlay of `/`
    boot.py      the process that holds a lab; when it ends, the lab is gone
    agent.py     runs commands in a lab that has a kernel of its own
    machine.py   what tests use: boot, run, write, wait, close
    server.py    a server with the ways to die
    deaths.py    the deaths, one entry each, and the causes that they must be given
    kills.py     what is done to a unit
    play.py      makes them, and asks `draftmark why`
    expect.py    what is wrong with what was found and said

`python -m tests.lab` plays all of them by hand. Linux, root, and for the `uml` mode Debian or Ubuntu on amd64.
"""
