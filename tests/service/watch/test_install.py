"""What is refused before anything is written. What is written is in test_live.py."""

from __future__ import annotations

import pytest

from draftmark.errors import BadInputError, DraftmarkError, RefusedError, UsageError
from draftmark.ports import Completed
from draftmark.service.watch.install import Wanted, install, remove, status
from draftmark.service.watch.places import SYSTEM, Settings, canonical, read_settings
from draftmark.service.watch.program import candidate_pythons, usable_python
from draftmark.testing.hosts import ScriptedHost

PYTHON = "/opt/venv/bin/python"
SHOWN = "Id=llm.service\nLoadState=loaded\nUnitFileState=enabled\nOnFailure=\n"
HOMES = "/home/me/.config\n/home/me/.local/state\n/run/user/1000\n"


def host(
    shown: str = SHOWN, files: dict[str, bytes | OSError] | None = None, *, is_root: bool = True
) -> ScriptedHost:
    answers: dict[str, Completed | bytes | str] = {
        "systemctl --user show": "LoadState=not-found\n",
        "systemctl show": shown,
        "printf": HOMES,
        "command -v systemctl": "/usr/bin/systemctl\n",
        f"{PYTHON} -P -m draftmark watch run --help": "usage: draftmark watch run [-h] [--user] unit\n",
        "^test -e": Completed(1),
    }
    return ScriptedHost(answers, files, is_root=is_root)


def wrote(asked: ScriptedHost) -> list[tuple[str, ...]]:
    harmless = ("show", "test", "env", "printf", "command -v", "XDG", "sudo -n -- true")
    return [argv for argv in asked.asked if not any(word in " ".join(argv) for word in harmless)]


@pytest.mark.parametrize(
    ("asked", "name", "python", "kind", "said"),
    [
        (host("LoadState=not-found\n"), "llm", PYTHON, BadInputError, "there is no unit llm.service"),
        (host("Id=llm.service\nLoadState=masked\n"), "llm", PYTHON, RefusedError, "masked"),
        (host(is_root=False), "llm", PYTHON, RefusedError, "needs root"),
        (host(), "llm@.service", PYTHON, UsageError, "template"),
        (host(), "llm.socket", PYTHON, UsageError, "cannot be the name of a service"),
        (host(), "../etc", PYTHON, UsageError, "cannot be the name of a service"),
        (host(), "a" * 240, PYTHON, UsageError, "too long"),
        (host(), "draftmark-watch@llm.service", PYTHON, UsageError, "Draftmark's own"),
        (host("Id=draftmark-watch@x.service\nLoadState=loaded\n"), "alias", PYTHON, UsageError, "Draftmark's own"),
        (host(), "llm", "/usr/bin/python3", RefusedError, "no Draftmark is installed"),
        (ScriptedHost({}), "llm", PYTHON, BadInputError, "no systemd"),
        (
            host(files={SYSTEM.drop_in("llm.service"): b"[Service]\nNice=5\n"}),
            "llm",
            PYTHON,
            RefusedError,
            "is not Draftmark's",
        ),
    ],
)
def test_refused_and_nothing_written(
    asked: ScriptedHost, name: str, python: str, kind: type[DraftmarkError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        install(asked, name, Wanted(), python=python)
    assert wrote(asked) == []


def test_a_drop_in_that_does_not_arrive_is_taken_back() -> None:
    asked = host()
    asked._answers |= {"^sh -c": "", "^systemctl": "", "^ls": ""}
    with pytest.raises(DraftmarkError, match="did not take over the drop-in"):
        install(asked, "llm", Wanted(), python=PYTHON)
    undone = [" ".join(argv) for argv in asked.asked]
    assert any("rm -f" in words and SYSTEM.drop_in("llm.service") in words for words in undone)


def test_ctrl_c_takes_back_what_was_written() -> None:
    class Interrupted(ScriptedHost):
        def _answer(self, argv):  # type: ignore[no-untyped-def]
            if "daemon-reload" in argv and not any("daemon-reload" in each for each in self.asked):
                self.asked.append(tuple(argv))
                raise KeyboardInterrupt
            return super()._answer(argv)

    asked = Interrupted(host()._answers | {"^sh -c": "", "^systemctl": "", "^ls": ""})
    with pytest.raises(KeyboardInterrupt):
        install(asked, "llm", Wanted(), python=PYTHON)
    after = [" ".join(argv) for argv in asked.asked]
    after = after[after.index("systemctl daemon-reload") :]
    for path in (SYSTEM.drop_in("llm.service"), *SYSTEM.templates, SYSTEM.settings("llm.service")):
        assert any("rm -f" in words and path in words for words in after), path


def test_an_interpreter_is_looked_for_where_none_is_named() -> None:
    asked = host()
    asked._answers |= {"command -v draftmark": f"/usr/bin/env python3\n{PYTHON}\n/usr/bin/python3\n"}
    assert usable_python(asked, candidate_pythons(asked)) == PYTHON
    with pytest.raises(RefusedError, match=r"on gpu1, as root.*/opt/draftmark/bin/pip install"):
        usable_python(asked, [])


def test_root_is_asked_for_where_sudo_lets() -> None:
    asked = host(is_root=False)
    asked._answers |= {"^sudo -n -- true": "", "^sudo -n -- env A=B": "", "^sudo .*test -e": Completed(1)}
    assert remove(asked, "llm") is None
    assert any(argv[:3] == ("sudo", "-n", "--") and "test" in argv for argv in asked.asked)


def test_the_run_before_the_watch_is_not_its_business() -> None:
    def seen(shown: str) -> list[tuple[str, ...]]:
        asked = host(SHOWN + f"InvocationID={'a' * 32}\n" + shown)
        asked._answers |= {"^sh -c": "", "^systemctl": "", "^ls": ""}
        with pytest.raises(DraftmarkError, match="did not take over"):
            install(asked, "llm", Wanted(), python=PYTHON)
        return [argv for argv in asked.asked if f"{SYSTEM.folder('llm.service')}/seen" in argv and "600" in argv]

    assert seen("ActiveState=failed\n")
    assert seen("ActiveState=activating\nSubState=auto-restart\n")
    assert not seen("ActiveState=active\nSubState=running\n")


def test_not_watched() -> None:
    assert remove(host(), "llm") is None
    found = status(host(), "llm.service")
    assert (found.settings, found.effective, found.missing) == (None, False, ())
    with pytest.raises(BadInputError, match="no unit"):
        status(host("LoadState=not-found\n"), "llm")


def test_settings_come_back() -> None:
    settings = Settings("llm.service", "/r", keep=5, webhook="https://x/y", made=["/r"])
    path = SYSTEM.settings("llm.service")
    assert read_settings(ScriptedHost({}, {path: settings.dump()}), SYSTEM, "llm.service") == settings
    newer = settings.dump().replace(b'"keep"', b'"later": 1, "keep"')
    assert read_settings(ScriptedHost({}, {path: newer}), SYSTEM, "llm.service") == settings
    for broken in (b"", b"[]", b"{}", b"\xff"):
        assert read_settings(ScriptedHost({}, {path: broken}), SYSTEM, "llm.service") is None


def test_names() -> None:
    assert canonical("llm") == "llm.service"
    assert canonical("llm@0") == "llm@0.service"
    assert canonical(r"my\x2dllm.service") == r"my\x2dllm.service"


def test_without_a_record_of_it_the_folder_of_the_drop_in_goes_too() -> None:
    """Somebody has removed the state by hand: what was made is not known any more."""
    asked = host()
    asked._answers |= {"^test -e": "", "^sh -c": "", "^systemctl": "", "^ls": ""}
    found = remove(asked, "llm")
    assert found is not None
    assert found.settings is None
    folder = SYSTEM.drop_in_folder("llm.service")
    assert [argv for argv in asked.asked if argv[-1] == folder and "rmdir" in argv[2]]
