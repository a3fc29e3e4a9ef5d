"""Every kind of unit that people have, through the supervisor and a real systemd.

Each is read, started with an arm's flags, and put back. What the started process was given is the kernel's word:
/proc/PID/cmdline.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.lab.machine import Machine
from tests.lab.root import USER, USER_ID

from draftmark.errors import FailedError, RefusedError
from draftmark.ports import Host
from draftmark.service.host import SystemClock
from draftmark.service.systemd.discover import FoundUnit, discover
from draftmark.service.systemd.supervisor import SystemdSupervisor, Terms

from .lab_host import LabHost
from .test_commandline import is_server, with_arm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SERVER = "/opt/kinds/llama-server"
SYSTEM = "/etc/systemd/system"
TRIAL = "zz-draftmark.trial.conf"
BIN = "/opt/kinds/bin"
PROGRAMS = {
    SERVER: "#!/bin/sh\nsleep 100000\n",
    f"{BIN}/numactl": '#!/bin/sh\nwhile case $1 in -*) :;; *) false;; esac; do shift; done\nexec "$@"\n',
    f"{BIN}/uv": '#!/bin/sh\nshift\nexec "$@"\n',
    f"{BIN}/docker": "#!/bin/sh\nexec sleep 100000\n",
    "/opt/kinds/hands-on.sh": f'#!/bin/bash\nset -e\nexec {SERVER} -c 4096 "$@"\n',
    "/opt/kinds/holds-it.sh": f'#!/bin/sh\nexec {SERVER} --method eagle --depth 3 "$@"\n',
    "/opt/kinds/all-its-own.sh": f"#!/bin/sh\nexec {SERVER} --method eagle --depth 3\n",
}
GENERATOR = "/etc/systemd/system-generators/llm-generator"
INIT = "/etc/init.d/llm"
GENERATOR_TEXT = f"""\
#!/bin/sh
printf '[Service]\\nExecStart={SERVER} --depth 3 --method eagle\\n' >"$1/generated.service"
printf '[Unit]\\nSourcePath={INIT}\\n[Service]\\nType=forking\\nExecStart={INIT} start\\n' >"$1/sysv.service"
"""
FOLDERS = (
    SYSTEM,
    "/run/systemd/system",
    "/run/systemd/generator",
    "/run/draftmark",
    "/var/lib/draftmark",
    "/opt/kinds",
)


@dataclass(frozen=True)
class Kind:
    """A unit, S standing for the server.

    Attributes:
        name: Of the unit, without `.service`.
        line: ExecStart=.
        settings: Further ones of [Service].
        files: Path to text, besides the unit's.
        links: Path to target.
        path: Of the unit's file.
        ask: How the user calls it; empty for its name.
        refused: The reason that is to be given; empty when it can be tuned.
        appended: The flags come behind those of a script, which stay: the last one counts.
    """

    name: str
    line: str = "S --depth 3 --method eagle"
    settings: str = ""
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    path: str = ""
    ask: str = ""
    refused: str = ""
    appended: bool = False

    @property
    def unit(self) -> str:
        return f"{self.name}.service"

    def all_files(self) -> dict[str, str]:
        stem, at, _ = self.name.partition("@")
        path = self.path or f"{SYSTEM}/{stem}{at}.service"
        text = f"[Service]\nExecStart={self.line.replace('S', SERVER, 1)}\nEnvironment=K=v\n{self.settings}\n"
        return {path: text, **self.files}


def drop_in(name: str, folder: str, text: str) -> dict[str, str]:
    return {f"{folder}/{name}": f"[Service]\n{text}\n"}


CHANGED = f"ExecStart=\nExecStart={SERVER} --depth 9 --method eagle"
KINDS = (
    Kind("plain"),
    Kind("equals", "S --depth=3 --ctx-size=4096 --method=eagle -m /m"),
    Kind("blank", "S --depth 3 -m /m --method eagle"),
    Kind("twice", "S --depth 3 --depth=4 -m /m --method eagle --depth 5"),
    Kind(
        "spelled",
        """S --alias 'a b' --depth "3" --json '{"a": "%%"}' -m "it's" --e \\x41\\tb $$HOME --method eagle""",
    ),
    Kind("specifiers@7b-q4", "S --alias %i -m /models/%I --log %N --depth 3 --method eagle"),
    Kind(
        "variables",
        "S $FLAGS -m ${MODEL} --depth 3 --method eagle $NONE",
        'Environment="FLAGS=--seed 7 --alias \'a b\'" "MODEL=/m x"',
    ),
    Kind(
        "environment-file",
        "S -m /m $LLAMA_ARGS --port 1",
        "EnvironmentFile=/etc/default/kinds-llm",
        files={"/etc/default/kinds-llm": "# flags\nLLAMA_ARGS=\"--depth 3 --method eagle --alias 'a b'\"\n"},
    ),
    Kind(
        "link",
        links={f"{SYSTEM}/link.service": "/opt/kinds/units/link.service"},
        path="/opt/kinds/units/link.service",
    ),
    Kind("named", links={f"{SYSTEM}/also.service": "named.service"}, ask="also.service"),
    Kind("template@0", files=drop_in("10.conf", f"{SYSTEM}/template@.service.d", "Environment=T=%i")),
    Kind("own-drop-in", files=drop_in("10.conf", f"{SYSTEM}/own-drop-in.service.d", CHANGED)),
    Kind("kept", files=drop_in("zz-draftmark.conf", f"{SYSTEM}/kept.service.d", CHANGED)),
    Kind("generated", path=GENERATOR, files={GENERATOR: GENERATOR_TEXT}),
    Kind(
        "sysv",
        path=INIT,
        files={INIT: f"#!/bin/sh\n# starts it\n{SERVER} --depth 3 &\n"},
        refused='handing on "\\$@"',
    ),
    Kind(
        "after-ours",
        files=drop_in("zzz-mine.conf", f"{SYSTEM}/after-ours.service.d", CHANGED),
        refused="zzz-mine.conf",
    ),
    Kind("login-shell", "/bin/bash -lc 'cd /tmp && exec S --depth 3 -m \"/m x\" --method eagle'"),
    Kind("pipe", "/bin/bash -c 'S --depth 3 --method eagle 2>&1 | cat'"),
    Kind("in-a-loop", "/bin/sh -c 'while :; do S --depth 3; done'", refused="inside of a loop"),
    Kind("numa", f"{BIN}/numactl --interleave=all S --depth 3 --method eagle"),
    Kind("env", "/usr/bin/env A=1 nice -n 1 S --depth=3 --method eagle"),
    Kind("uv", f"{BIN}/uv run llama-server --depth 3 --method eagle", "Environment=PATH=/opt/kinds:/usr/bin:/bin"),
    Kind("docker", f"{BIN}/docker run --rm --gpus all -p 80:80 image -m /m --depth 3", refused="container"),
    Kind("docker-names-it", f"{BIN}/docker run --rm image S --depth 3", refused="container"),
    Kind("docker-in-shell", f"/bin/sh -c 'exec {BIN}/docker run --rm image --depth 3'", refused="container"),
    Kind("script", "/opt/kinds/hands-on.sh --depth 3 --method eagle"),
    Kind("sh-script", "/bin/sh /opt/kinds/hands-on.sh --depth 3 --method eagle"),
    Kind("script-holds-it", "/opt/kinds/holds-it.sh -m /m", appended=True),
    Kind("script-all-its-own", "/opt/kinds/all-its-own.sh", refused='without handing on "\\$@"'),
    Kind("two-commands", "S --depth 3", f"ExecStart={SERVER} --depth 4\nType=oneshot", refused="several commands"),
)


@pytest.fixture(scope="module")
def kinds(lab: Machine) -> Iterator[Machine]:
    files = dict(PROGRAMS)
    links: dict[str, str] = {}
    for kind in KINDS:
        files |= kind.all_files()
        links |= kind.links
    writer = (
        "import json,os,sys\nfiles,links=json.load(sys.stdin)\n"
        "for p,t in files.items():\n os.makedirs(os.path.dirname(p),exist_ok=True)\n open(p,'w').write(t)\n"
        " os.chmod(p, 0o755 if t.startswith('#!') else 0o644)\n"
        "for p,t in links.items(): os.symlink(t,p)\n"
    )
    lab.check([sys.executable, "-S", "-c", writer], data=json.dumps([files, links]))
    lab.check(["systemctl", "daemon-reload"])
    yield lab
    lab.run(["systemctl", "stop", *(kind.unit for kind in KINDS)])
    lab.check(["rm", "-rf", *(set(files) - {SERVER}), *links, "/opt/kinds"])
    lab.check(["systemctl", "daemon-reload"])


def found(machine: Machine, name: str, host: Host | None = None) -> FoundUnit:
    host = host or LabHost(machine)
    return discover(host, name, is_server=is_server, read_as=host)


def supervisor(unit: FoundUnit, host: Host) -> SystemdSupervisor:
    terms = Terms(
        settings={},
        stop_timeout_s=20,
        port=None,
        header=("trial",),
        undo="draftmark restore",
        keep_header=lambda _: (),
    )
    return SystemdSupervisor(host=host, unit=unit, terms=terms, clock=SystemClock(), same_host=False)


RUNNING = f"""
import glob, json, sys
out = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(path, "rb").read().split(b"\\0")[:-1]
        group = open(path.replace("cmdline", "cgroup")).read()
    except OSError:
        continue
    if words[1:2] == [b"{SERVER}"] and "/" + sys.argv[1] in group:
        out.append([w.decode() for w in words[2:]])
print(json.dumps(out))
"""


def running(machine: Machine, unit: str) -> list[list[str]]:
    """The server's arguments, of each that runs in the unit."""
    found: list[list[str]] = json.loads(machine.check([sys.executable, "-S", "-c", RUNNING, unit]))
    return found


def await_running(machine: Machine, unit: str) -> list[str]:
    clock = SystemClock()
    until = clock.monotonic() + 20
    while not (found := running(machine, unit)) and clock.monotonic() < until:
        clock.sleep(0.05)
    (arguments,) = found
    return arguments


def arguments(argv: Sequence[str]) -> list[str]:
    at = next(i for i, word in enumerate(argv) if Path(word).name == "llama-server")
    return list(argv[at + 1 :])


def files_now(machine: Machine) -> str:
    find = 'find "$@" -printf "%p %y %m %u %l\\n" 2>/dev/null | sort; '
    find += 'find "$@" -type f -exec sha256sum {} + 2>/dev/null | sort'
    return machine.check(["sh", "-c", find, "x", *FOLDERS])


@dataclass(frozen=True)
class Seen:
    """What happened to a unit."""

    read: list[str] = field(default_factory=list)
    original: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    arm: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    refused: RefusedError | None = None


def play(machine: Machine, kind: Kind, folder: Path) -> Seen:
    begun = ("--no-block",) if "Type=oneshot" in kind.settings else ()  # its start ends when its last command does
    machine.run(["systemctl", "start", *begun, kind.unit])
    host = LabHost(machine)
    try:
        unit = found(machine, kind.ask or kind.unit)
        wanted = with_arm(unit.command.argv, 7)
        line = unit.command.rewritten(wanted)
    except RefusedError as refused:
        return Seen(refused=refused)
    assert unit.name == kind.unit
    original = await_running(machine, unit.name)
    held = supervisor(unit, host)
    with held:
        held.stop(force=True)
        held.start(wanted, folder / f"{kind.name}.log")
        arm = await_running(machine, unit.name)
        held.restore(force=True)
    again = await_running(machine, unit.name)
    read = arguments(unit.command.effective(line)) if kind.appended else arguments(wanted)
    return Seen(arguments(unit.command.argv), original, read, arm, again)


Story = tuple[dict[str, Future[Seen]], str, str]


@pytest.fixture(scope="module")
def story(kinds: Machine, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Several at a time: they have nothing to do with each other."""
    folder = tmp_path_factory.mktemp("logs")
    before = files_now(kinds)
    with ThreadPoolExecutor(4) as pool:
        seen = {kind.name: pool.submit(play, kinds, kind, folder) for kind in KINDS}
    return seen, before, files_now(kinds)


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.refused], ids=lambda kind: kind.name)
def test_only_the_flags_of_the_arm_change(story: Story, kind: Kind) -> None:
    seen = story[0][kind.name].result()
    assert seen.refused is None
    assert seen.original == seen.read
    assert seen.arm == seen.wanted
    assert "7" in seen.arm
    assert seen.again == seen.original


@pytest.mark.parametrize("kind", [k for k in KINDS if k.refused], ids=lambda kind: kind.name)
def test_what_cannot_be_changed_is_refused_with_the_reason(story: Story, kind: Kind) -> None:
    refused = story[0][kind.name].result().refused
    assert refused is not None
    assert refused.exit_status == 30
    with pytest.raises(RefusedError, match=kind.refused):
        raise refused
    assert refused.evidence
    assert refused.next_step


def test_every_file_is_as_it_was(story: Story) -> None:
    _, before, after = story
    assert after == before


# --- what is found in the way --------------------------------------------------------------------------------


def install(machine: Machine, name: str, *more: tuple[str, str]) -> None:
    files = {f"{SYSTEM}/{name}": f"[Service]\nExecStart={SERVER} --depth 3 --method eagle\n", **dict(more)}
    for path, text in files.items():
        machine.write(path, text)
    machine.check(["systemctl", "daemon-reload"])


def test_a_drop_in_that_a_dead_draftmark_left_is_not_taken_for_the_original(kinds: Machine) -> None:
    path = f"/run/systemd/system/stale.service.d/{TRIAL}"
    install(kinds, "stale.service", (path, f"[Service]\n{CHANGED}\n"))
    kinds.check(["systemctl", "start", "stale.service"])
    assert await_running(kinds, "stale.service") == ["--depth", "9", "--method", "eagle"]
    unit = found(kinds, "stale.service")
    assert arguments(unit.command.argv) == ["--depth", "3", "--method", "eagle"]
    with supervisor(unit, LabHost(kinds)):
        pass
    assert await_running(kinds, "stale.service") == ["--depth", "3", "--method", "eagle"]
    assert kinds.run(["test", "-e", path]).status == 1


def test_a_file_that_systemd_has_not_read_yet(kinds: Machine, tmp_path: Path) -> None:
    install(kinds, "edited.service")
    kinds.check(["systemctl", "start", "edited.service"])
    path = f"{SYSTEM}/edited.service"
    kinds.check(["sed", "-i", "s/$/ --port 1/;1s/.*/[Service]/", path])
    assert kinds.show("edited.service")["NeedDaemonReload"] == "yes"
    unit = found(kinds, "edited.service")
    assert arguments(unit.command.argv) == ["--depth", "3", "--method", "eagle", "--port", "1"]
    held = supervisor(unit, LabHost(kinds))
    with pytest.raises(RefusedError, match="cannot be held") as caught, held:
        pass
    assert "were changed and not loaded" in caught.value.evidence[0]
    assert kinds.show("edited.service")["NeedDaemonReload"] == "yes"  # whether it is to be read is not ours to say
    kinds.check(["systemctl", "daemon-reload"])
    with held:
        held.stop(force=True)
        held.start(with_arm(unit.command.argv, 7), tmp_path / "log")
        assert await_running(kinds, "edited.service") == ["--port", "1", "--method", "eagle", "--depth", "7"]
        held.restore(force=True)


def test_a_later_drop_in_of_others_that_appears_while_it_is_held(kinds: Machine, tmp_path: Path) -> None:
    install(kinds, "meddled.service")
    kinds.check(["systemctl", "start", "meddled.service"])
    unit = found(kinds, "meddled.service")
    held = supervisor(unit, LabHost(kinds))
    with held:
        held.stop(force=True)
        kinds.write(f"{SYSTEM}/meddled.service.d/zzz.conf", f"[Service]\n{CHANGED}\n")
        wanted = with_arm(unit.command.argv, 7)
        with pytest.raises(FailedError, match="somebody else has changed") as caught:
            held.start(wanted, tmp_path / "log")
        assert caught.value.evidence == (f"{SYSTEM}/meddled.service.d/zzz.conf is new",)
        assert running(kinds, "meddled.service") == []
        held.restore(force=True)
    assert await_running(kinds, "meddled.service")[1] == "9"


def test_a_unit_of_a_user_s_own_manager(kinds: Machine, tmp_path: Path) -> None:
    runtime = f"/run/user/{USER_ID}"
    kinds.check(["sh", "-c", f"mkdir -p {runtime} && chown {USER}: {runtime} && chmod 700 {runtime}"])
    kinds.check(
        [
            *("systemd-run", "--unit=own-manager", "-p", f"User={USER}", "-p", "Delegate=yes", "-p", "Type=notify"),
            *(f"--setenv=XDG_RUNTIME_DIR={runtime}", "/lib/systemd/systemd", "--user"),
        ]
    )
    host = LabHost(kinds, USER, (f"XDG_RUNTIME_DIR={runtime}",))
    text = f"[Service]\nExecStart={SERVER} --alias %u-%t --home %h --depth 3 --method eagle\n"
    folder = f"/home/{USER}/.config/systemd/user"
    kinds.check(["sh", "-c", f"mkdir -p {folder} && cat >{folder}/mine.service"], user=USER, data=text)
    find = ["find", f"/home/{USER}/.config", f"{runtime}/systemd", "-newermt", "2000-01-01"]
    host.run(["systemctl", "--user", "daemon-reload"])
    host.run(["systemctl", "--user", "start", "mine"])
    before = host.run(find).stdout
    unit = found(kinds, "mine", host)
    original = await_running(kinds, "mine.service")
    assert original == arguments(unit.command.argv)
    assert original[:4] == ["--alias", f"{USER}-{runtime}", "--home", f"/home/{USER}"]
    held = supervisor(unit, host)
    with held:
        held.stop(force=True)
        held.start(with_arm(unit.command.argv, 7), tmp_path / "log")
        assert await_running(kinds, "mine.service") == [*original[:4], "--method", "eagle", "--depth", "7"]
        held.restore(force=True)
    assert await_running(kinds, "mine.service") == original
    assert host.run(find).stdout == before
    kinds.check(["systemctl", "stop", "own-manager.service"])
