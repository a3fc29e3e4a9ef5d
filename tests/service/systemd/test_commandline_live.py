"""Against a real systemd: what it hands to a program is what was said, before a change and after.

The program writes down its words, byte by byte, and its environment. Each unit is started as it is, then with a
drop-in that gives it other flags, once in the same place and once at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest
from tests.lab.machine import Machine, Mode
from tests.lab.packages import UnavailableError

from draftmark.service.systemd.commandline import UnitCommand
from draftmark.service.systemd.dropin import render
from draftmark.service.systemd.environment import ServiceEnvironment, service_environment, wanted_files
from draftmark.service.systemd.specifiers import HostFacts, specifier_values
from draftmark.service.systemd.unitfile import Unit, UnitFile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PROGRAM = "/opt/srv/dump-server"
DUMP = f"""\
#!{Path(sys.executable).resolve()} -SE
import json, os
words = open("/proc/self/cmdline", "rb").read().split(b"\\0")[3:-1]
unit = open("/proc/self/cgroup").read().rsplit("/", 1)[1].strip()
with open("/run/dumps/" + unit, "w") as file:
    json.dump({{"words": [w.decode("latin-1") for w in words], "environ": dict(os.environ)}}, file)
"""
# Set by systemd for itself or by shells, each time anew.
OTHERS = {
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "MEMORY_PRESSURE_WATCH",
}


@dataclass(frozen=True)
class Case:
    """A unit whose ExecStart= holds `--depth 3`, with D for the program."""

    name: str
    line: str
    settings: str = ""
    files: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    dropins: tuple[str, ...] = ()
    instance: str = ""
    last_wins: bool = False
    exports: bool = False  # the script sets variables of its own

    @property
    def unit(self) -> str:
        return f"c-{self.name}@{self.instance}.service" if self.instance else f"c-{self.name}.service"

    @property
    def path(self) -> str:
        return f"/etc/systemd/system/c-{self.name}{'@' if self.instance else ''}.service"

    def texts(self) -> list[UnitFile]:
        body = f"[Unit]\nDescription=%n\n[Service]\nType=oneshot\nExecStart={self.line.replace('D', PROGRAM, 1)}\n"
        dropins = [UnitFile(f"{self.path}.d/{i}.conf", text) for i, text in enumerate(self.dropins)]
        return [UnitFile(self.path, f"{body}{self.settings}\n"), *dropins]


RUN = "/usr/local/bin/run-llm.sh"
PASSES_ON = (
    f'#!/bin/sh\nset -eu\n# starts it\nif [ -n "${{X:-}}" ]; then echo x; fi\nexec {PROGRAM} -m "a b" "$@"\n'
)
CASES = (
    Case("plain", "D --model /m --depth 3 --port 8000"),
    Case("equals", "D --model=/m --depth=3 --depth 3 --port=8000"),
    Case("quotes", """D --a 'x y' --b "p 'q' r" --depth "3" --c 'it\\'s' --d "" --e ''"""),
    Case("inside", """D --a=pre'x y'post --depth 3 "--b"='1'"2"3"""),
    Case(
        "escapes", r"""D --a a\tb --b "a\nb" --c '\x41\102\u00e9\U0001F600' --depth 3 --d \s\\ --e \q\z --f a\ b"""
    ),
    Case("bytes", r"D --a \xc3\xa9 --b '\xc3'\xa9 --c \303\251x --depth 3"),
    Case("not-utf8", r"D --a \xff\xfe --depth 3 --b x"),
    Case("nul-escape", r"D --a \x00b --b \000 --c \u0000 --depth 3 --d \ud800 --e \U00110000"),
    Case("semicolon", r"""D --a \; --depth 3 --b ';' --c a;b --d ;x"""),
    Case("trailing-semicolon", "D --depth 3 ;"),
    Case("percent", "D --a 100%% --b %%i --c % --d 5%/x --depth 3 --e %n --f %N --g %p"),
    Case(
        "specifiers",
        "D --i %i --I %I --j %j --J %J --p %p --P %P --f %f --depth 3 %n-%i.log",
        instance=r"7b-a\x2db",
    ),
    Case("directories", "D %t %S %C %L %E %h %u %U %g %G %T %V %d %y %Y --depth 3"),
    Case("host", "D %H %l %m %b %v %a %q %o %w --depth 3"),
    Case(
        "dollars",
        "D --a $$ --b $$X --c a$$b --d $ --e a$ --f $$$$ --depth 3 --g $$$X --h $5",
        'Environment="X=x y"',
    ),
    Case("lone", "D $A --depth 3 $B --x $NONE $E", 'Environment="A=--a \'b c\' d\\\\\\\\e" "B=--b" E='),
    Case("lone-holds-it", "D --x $FLAGS --y", "Environment=\"FLAGS=--depth 3 --seed '1 2'\""),
    Case("lone-open-quote", "D $A --depth 3", 'Environment="A=--a \'b c"'),
    Case("braces", 'D --a ${A} --b ${NONE} --c x${A}y${A} --depth 3 "${A}"', 'Environment="A=1  2"'),
    Case("no-such-syntax", "D ${A:-x} ${A ${A}} $A-b x$A ${A:-${A}} --depth 3", "Environment=A=1"),
    Case("value-in-variable", "D --depth ${D} --d x --depth 3", "Environment=D=3"),
    Case("instance-in-variable", "D --a ${V_%i} --depth 3", "Environment=V_7b=seven", instance="7b"),
    Case("variable-in-instance", "D --a %I --depth 3 --b ${%i}", "Environment=VV=seven", instance="VV"),
    Case("no-expansion", ":D --a $A --b ${A} --c $$ --d %% --depth 3", "Environment=A=1"),
    Case("argv0", "@D my-name --a b --depth 3"),
    Case("prefixes", "-+D --a b --depth 3 --c"),
    Case("quoted-prefix", '"-D" --a b --depth 3 --c'),
    Case("continued", "D --a 'b \\\n   c' \\\n# why\n   ; and why\n   --depth 3 \\\n   --last x"),
    Case("continued-end", "D --a b \\\n   --depth 3 \\\n"),
    Case("unicode", "D --a héllo --b 'ÿ 日本' --depth 3 --c 😀"),
    Case("json", """D --json '{"a": [1, 2], "b": "c d"}' --depth 3 --x "{\\"k\\":\\"v\\"}" """),
    Case(
        "environment-files",
        "D $LLAMA_ARGS --a ${PORT} --depth 3 --q ${Q} --r ${R} --s ${S} --t ${T}",
        'Environment=PORT=1 Q=unit "R=a\\tb" S=gone\nEnvironmentFile=/etc/default/c-one\n'
        "EnvironmentFile=-/etc/default/c-none\nEnvironmentFile=/etc/default/c-two*\nUnsetEnvironment=S T=no",
        files={
            "/etc/default/c-one": "# c\n; d\nLLAMA_ARGS=\"--x 'y z'\" \nPORT = 8000  \nQ='a\nb'\nbad line\n"
            "export N=1\n",
            "/etc/default/c-two-a": "PORT=9000\nT=yes\n",
            "/etc/default/c-two-b": 'PORT=9001 # no comment\nT="a\\"b\\$c\\d\\\ne"\n',
        },
    ),
    Case(
        "environment-odd",
        "D --depth 3 ${A} ${B} ${C} ${E} ${F} ${G} ${H}",
        "EnvironmentFile=/etc/default/c-odd",
        files={
            "/etc/default/c-odd": 'A=a\\ b\\\\c\nB=x"y z"\nC=\'p\'"q" r \\\n  s\nE=\nF=  two  words\t\n'
            "# odd \\\nG=g\r\nH='x'y"
        },
    ),
    Case(
        "environment-settings",
        "D --depth 3 ${A} ${B} ${C} ${E} ${F}",
        "Environment=A=1 'B=2 3' bad 9=x\nEnvironment=\nEnvironment=\"A=%n\" C=\\x41 F=a'b c'd\n"
        'Environment=E=1 E=2 "open',
    ),
    Case("user", "D --home ${HOME} --u ${USER} --l ${LOGNAME} --depth 3", "User=lab"),
    Case("pass", "D --a ${LAB_PASSED} --p ${PATH} --depth 3", "PassEnvironment=LAB_PASSED container"),
    Case(
        "dropins",
        "D --depth 1",
        dropins=(
            "[Service]\nExecStart=\n",
            f"[Service]\nExecStart={PROGRAM} --from dropin --depth 3\n[X-Y]\nExecStart=/x\n",
        ),
    ),
    Case("shell", "/bin/sh -c 'exec D --a \"b c\" --depth 3 --c $$HOME'"),
    Case(
        "shell-chain",
        '/bin/bash -c \'cd /tmp && export A="x y" && '
        'exec nice -n 0 D --a "$A" --b $A --depth 3 --c=%p 2>&1 | cat # end\'',
        exports=True,
    ),
    Case("shell-double", '/bin/bash -lc "exec D --a \\"p q\\" --depth 3 --b \'r s\' --c \\\\$HOME"'),
    Case(
        "shell-variables",
        '/bin/bash -c \'X=1; M="a  b"; exec D $FLAGS $M "$M" ${NONE:-z} ${FLAGS:+w} $X$X --depth 3\'',
        'Environment="FLAGS=--f g"',
    ),
    Case("shell-flags", "/bin/sh -ec 'exec D $FLAGS --z'", 'Environment="FLAGS=--depth 3 --g"'),
    Case(
        "shell-array",
        '/bin/bash -c \'A=(--a "b c" --depth 3); A+=(--d); exec D "$${A[@]}" --e "" "$${NO[@]}"\'',
    ),
    Case("shell-arguments", "/bin/bash -c 'exec D \"$@\" --x $2' name --depth 3 'a b' %p"),
    Case(
        "shell-lines",
        "/bin/bash -c 'set -e\\nif false; then echo; fi >/dev/null || :\\n\\\n"
        "  exec D \\\\\\n  --a b \\\\\\n  --depth 3\\n'",
    ),
    Case(
        "shell-quotes", "/bin/bash -c 'exec D --a \"it'\"'\"'s\" --depth 3 --b \\\\\"x --c $'\"'\"'t\\\\tu'\"'\"'' "
    ),
    Case("shell-in-shell", '/bin/sh -c \'exec bash -c "exec D --a 1 --depth 3 --b \\\\"x y\\\\""\''),
    Case("shell-background", "/bin/bash -c 'D --depth 3 --a & wait'"),
    Case("env", "/usr/bin/env A=1 taskset 1 D --depth 3 --a"),
    Case("script", f"{RUN} --depth 3 'a b' %p", scripts={RUN: PASSES_ON}),
    Case(
        "script-last-wins",
        "/usr/local/bin/run-fixed.sh --a 'b c'",
        scripts={"/usr/local/bin/run-fixed.sh": f'#!/usr/bin/env bash\nexec {PROGRAM} --depth 3 --m x "$@"\n'},
        last_wins=True,
    ),
)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    try:
        booted = Machine.boot(Mode.SHARED)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield booted
    booted.close()


@dataclass(frozen=True)
class Dumped:
    words: tuple[str, ...]
    environ: dict[str, str]


def _write(machine: Machine, files: dict[str, str]) -> None:
    writer = (
        "import json,os,sys\nfor p,t in json.load(sys.stdin).items():\n"
        " os.makedirs(os.path.dirname(p),exist_ok=True)\n"
        " open(p,'wb').write(t.encode('utf-8','surrogateescape')); os.chmod(p, 0o755)\n"
    )
    machine.check([sys.executable, "-S", "-c", writer], data=json.dumps(files))


def _run(machine: Machine, units: Sequence[str]) -> dict[str, Dumped]:
    """Start them, one and all, and read what they wrote."""
    machine.check(
        ["sh", "-c", "rm -rf /run/dumps; mkdir -p /run/dumps; chmod 1777 /run/dumps; systemctl daemon-reload"]
    )
    machine.run(["systemctl", "start", *units])
    read = (
        "import glob,json\n"
        "print(json.dumps({p.rsplit('/',1)[1]: json.load(open(p)) for p in glob.glob('/run/dumps/*')}))"
    )
    found = json.loads(machine.check([sys.executable, "-S", "-c", read]))
    return {
        unit: Dumped(tuple(os.fsdecode(w.encode("latin-1")) for w in dump["words"]), dump["environ"])
        for unit, dump in found.items()
    }


@dataclass(frozen=True)
class Read:
    """A case as it is understood."""

    case: Case
    environment: ServiceEnvironment
    command: UnitCommand


def is_server(argv: Sequence[str]) -> bool:
    return any(PurePosixPath(word).name == "dump-server" for word in argv)


def _read(machine: Machine, cases: Sequence[Case]) -> dict[str, Read]:
    facts = _facts(machine)
    shown = machine.check(["systemctl", "show-environment"]).splitlines()
    base = dict(line.split("=", 1) for line in shown)
    version = int(machine.check(["systemctl", "--version"]).split()[1])
    return {case.unit: _understood(case, facts, base, version) for case in cases}


def _understood(case: Case, facts: HostFacts, base: dict[str, str], version: int) -> Read:
    # As `systemctl show` tells them; of a unit with words that are not UTF-8 it tells nothing: the bus refuses.
    properties = {"Id": case.unit, "FragmentPath": case.path, "ControlGroup": ""}
    specifiers = specifier_values(properties, facts)
    unit = Unit.parse(case.texts())
    assert [w.path for w in wanted_files(unit, specifiers)] == [
        line.split("=", 1)[1].removeprefix("-")
        for line in case.settings.splitlines()
        if line.startswith("EnvironmentFile")
    ]
    if (user := unit.last("User")) is not None:
        base = {
            **base,
            "USER": user.value,
            "LOGNAME": user.value,
            "HOME": f"/home/{user.value}",
            "SHELL": "/bin/sh",
        }
    manager = {"container": "lab"}
    environment = service_environment(unit, specifiers, case.files, base=base, manager=manager, version=version)
    command = UnitCommand.parse(
        case.texts(),
        environment,
        properties,
        case.scripts,
        is_server,
        last_wins=case.last_wins,
        specifiers=specifiers,
    )
    return Read(case, environment, command)


def _facts(machine: Machine) -> HostFacts:
    script = (
        "uname -n; cat /etc/machine-id /proc/sys/kernel/random/boot_id; uname -r; uname -m; "
        ". /etc/os-release; echo $ID; echo $VERSION_ID"
    )
    name, machine_id, boot_id, kernel, processor, os_id, version = machine.check(["sh", "-c", script]).splitlines()
    return HostFacts(
        hostname=name,
        machine_id=machine_id,
        boot_id=boot_id,
        kernel=kernel,
        machine=processor,
        os_release={"ID": os_id, "VERSION_ID": version},
    )


def arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """What stands behind the program."""
    at = next(i for i, word in enumerate(argv) if PurePosixPath(word).name == "dump-server")
    return tuple(argv[at + 1 :])


def in_place(argv: Sequence[str]) -> list[str]:
    """Other value for the last `--depth`."""
    new = list(argv)
    new[len(new) - 1 - new[::-1].index("--depth") + 1] = "a 7%i$X"
    return new


def at_the_end(argv: Sequence[str]) -> list[str]:
    """Without any `--depth`, and with new ones at the end."""
    new: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--depth":
            next(words)
        elif not word.startswith("--depth="):
            new.append(word)
    return [*new, "--depth", "7", "--note", '{"it\'s": "%n $HOME ${PATH}\\"}', ""]


def none(argv: Sequence[str]) -> list[str]:
    return at_the_end(argv)[:-5]


@dataclass(frozen=True)
class Story:
    """All that was seen."""

    read: dict[str, Read]
    runs: dict[str, dict[str, Dumped]]
    wanted: dict[str, dict[str, tuple[str, ...]]]


CHANGES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "in place": in_place,
    "at the end": at_the_end,
    "none": none,
}


@pytest.fixture(scope="module")
def story(machine: Machine) -> Story:
    files = {PROGRAM: DUMP}
    for case in CASES:
        files |= {file.path: file.text for file in case.texts()} | case.files | case.scripts
    _write(machine, files)
    units = [case.unit for case in CASES]
    runs = {"": _run(machine, units)}
    read = _read(machine, CASES)
    wanted: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, change in CHANGES.items():
        dropins: dict[str, str] = {}
        wanted[name] = {}
        for unit, known in read.items():
            if known.case.last_wins and name == "none":
                continue
            new = change(known.command.argv)
            line = known.command.rewritten(new)
            wanted[name][unit] = tuple(known.command.effective(line)) if known.case.last_wins else tuple(new)
            dropins[f"/run/systemd/system/{unit}.d/zz-draftmark.trial.conf"] = render(
                exec_start=line, settings={}, header=("trial", "undo: remove this file")
            )
        _write(machine, dropins)
        runs[name] = _run(machine, list(wanted[name]))
    return Story(read, runs, wanted)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_program_gets_the_words_that_were_read(story: Story, case: Case) -> None:
    assert story.runs[""][case.unit].words == arguments(story.read[case.unit].command.argv)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_program_gets_the_words_that_were_wanted(story: Story, case: Case, change: str) -> None:
    if case.unit not in story.wanted[change]:
        pytest.skip("flags of a script cannot be taken out")
    assert story.runs[change][case.unit].words == arguments(story.wanted[change][case.unit])


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_program_gets_the_environment_that_was_read(story: Story, case: Case) -> None:
    real = {k: v for k, v in story.runs[""][case.unit].environ.items() if k not in OTHERS}
    ours = {k: v for k, v in story.read[case.unit].environment.items() if k not in OTHERS}
    if case.exports or "shell" in case.name or case.name in {"env", "script"}:
        if "-lc" in case.line:  # the profile sets it anew
            ours.pop("PATH")
        assert {k: real[k] for k in ours} == ours
    else:
        assert real == ours
