"""The process that holds a lab: `python -m tests.lab.boot JSON`, started by `machine.py`.

It keeps the read end of a pipe whose write end only the tests have. When that closes, because they are done or were
killed, it kills the lab's PID 1, and the kernel ends everything inside the namespaces. When this process itself is
killed, the kernel does the same for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import sys
from pathlib import Path
from typing import Any

from . import cgroups
from .kernel import (
    NEWIPC,
    NEWNS,
    NEWPID,
    NEWUTS,
    PRIVATE,
    RECURSIVE,
    bind,
    die_with_parent,
    enter_mounts,
    host_name,
    mount,
    pivot,
    unmount,
    unshare,
)
from .root import TARGET, Plan, folders, overlay

BASE = Path("/mnt")  # hidden by the lab's memory disk, in the lab's mount namespace alone
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def hold(options: dict[str, Any]) -> int:
    """Boot, tell the PID of the lab's first process, wait for the end of the tests or of the lab."""
    own_kernel = options["kernel"] is not None
    groups = {} if own_kernel else cgroups.plan(f"{os.getpid()}-{options['name']}")
    try:
        unshare(NEWPID | NEWIPC)
    except OSError as error:
        print(error.strerror, file=sys.stderr)
        return 1
    init = os.fork()
    if init == 0:
        first_process(options, groups)
    print(json.dumps({"init": init}), flush=True)
    ended = os.pidfd_open(init)
    select.select([0, ended], [], [])
    signal.pidfd_send_signal(ended, signal.SIGKILL)
    os.waitpid(init, 0)
    cgroups.remove(groups)
    return 0


def first_process(options: dict[str, Any], groups: dict[Path, str]) -> None:
    """Becomes PID 1 of the lab, or says why not and ends."""
    try:
        die_with_parent(signal.SIGKILL)
        os.setsid()
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if options["mounts"] is not None:
            shared_kernel_again(options["mounts"], groups)
        unshare(NEWNS | NEWUTS)
        mount("none", Path("/"), None, RECURSIVE | PRIVATE)
        mount("proc", Path("/proc"), "proc")
        layer = Path(options["layer"]) if options["layer"] else None
        root = overlay(BASE, Plan(own_kernel=options["kernel"] is not None, layer=layer))
        if options["kernel"] is None:
            shared_kernel(root, groups)
        else:
            own_kernel(root, options)
    except BaseException as error:
        print(f"the lab does not boot: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)


def shared_kernel(root: Path, groups: dict[Path, str]) -> None:
    """systemd in namespaces of this machine's kernel."""
    cgroups.enter(groups)
    Path("/proc/self/oom_score_adj").write_text("0")  # what protects the tests must not protect what they kill
    mount("proc", root / "proc", "proc")
    mount("sysfs", root / "sys", "sysfs")
    cgroups.show(groups, root)
    mount("tmpfs", root / "run", "tmpfs", 0, "mode=755")
    forget_the_past(root / "run")
    mount("tmpfs", root / "dev", "tmpfs", 0, "mode=755")
    for name in DEVICES:
        (root / "dev" / name).touch()
        bind(Path("/dev", name), root / "dev" / name)
    folders(root / "dev", ("pts", "shm"))
    mount("devpts", root / "dev/pts", "devpts", 0, "newinstance,ptmxmode=666,mode=620")
    mount("tmpfs", root / "dev/shm", "tmpfs", 0, "mode=1777")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        (root / "dev" / name).symlink_to(target)
    pivot(root)
    start_systemd()


def shared_kernel_again(mounts: int, groups: dict[Path, str]) -> None:
    """As `shared_kernel`, on the disks of a lab that was cut off; /run is new, as after any boot."""
    cgroups.enter(groups)
    Path("/proc/self/oom_score_adj").write_text("0")
    enter_mounts(mounts)
    unshare(NEWNS | NEWUTS)
    mount("none", Path("/"), None, RECURSIVE | PRIVATE)
    mount("proc", Path("/proc"), "proc")
    for path in ("/run", "/sys/fs/cgroup"):
        unmount(Path(path))
    cgroups.show(groups, Path("/"))
    mount("tmpfs", Path("/run"), "tmpfs", 0, "mode=755")
    forget_the_past(Path("/run"))
    start_systemd()


def start_systemd() -> None:
    """Becomes it."""
    host_name("lab")
    command = ["/lib/systemd/systemd", "--system", "--show-status=0", f"--unit={TARGET}"]
    os.execve(command[0], command, {**ENVIRONMENT, "container": "lab"})


def forget_the_past(run: Path) -> None:
    """Let journald begin with the kernel's next line: it would give this machine's old ones today's time."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    following = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            following = int(os.read(log, 8192).split(b",", 2)[1]) + 1
    os.close(log)
    folders(run, ("systemd/journal",))
    (run / "systemd/journal/kernel-seqnum").write_bytes(struct.pack("Q", following))


def own_kernel(root: Path, options: dict[str, Any]) -> None:
    """A kernel as a child process, with systemd as its PID 1; this process reaps."""
    runtime = BASE / "kernel"
    runtime.mkdir()
    requests, answers = options["serial"]
    command = [
        options["kernel"],
        f"mem={options['memory_mib']}M",
        f"uml_dir={runtime}/",
        "umid=lab",
        "rootfstype=hostfs",
        f"rootflags={root}",
        "rw",
        "init=/lib/systemd/systemd",
        f"systemd.unit={TARGET}",
        "systemd.unified_cgroup_hierarchy=1",
        "systemd.show_status=0",
        "systemd.hostname=lab",
        "systemd.firstboot=off",
        "sysctl.kernel.dmesg_restrict=1",  # as Debian and Ubuntu have it
        "con=null",
        "con0=null,fd:1",
        "ssl=null",
        f"ssl0=fd:{requests},fd:{answers}",
        "printk.time=1",
        "panic=-1",
        "quiet",
    ]
    child = os.fork()
    if child == 0:
        Path("/proc/self/oom_score_adj").write_text("500")  # should this machine itself run out of memory
        os.execve(command[0], command, {**ENVIRONMENT, "TMPDIR": str(runtime), "HOME": "/root"})
    while os.wait()[0] != child:
        pass
    print("the lab's kernel ended", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(hold(json.loads(sys.argv[1])))
