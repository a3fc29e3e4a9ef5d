"""An exit status is no signal, though they share their numbers; and systemd has names for either."""

from __future__ import annotations

import pytest

from .small import journal, verdict

# systemd.exec(5), "Process Exit Codes": those of LSB from 1, those of BSD from 64.
_LSB = (
    "FAILURE",
    "INVALIDARGUMENT",
    "NOTIMPLEMENTED",
    "NOPERMISSION",
    "NOTINSTALLED",
    "NOTCONFIGURED",
    "NOTRUNNING",
)
_BSD = (
    *("USAGE", "DATAERR", "NOINPUT", "NOUSER", "NOHOST", "UNAVAILABLE", "SOFTWARE", "OSERR", "OSFILE", "CANTCREAT"),
    *("IOERR", "TEMPFAIL", "PROTOCOL", "NOPERM", "CONFIG"),
)
_NAMES = dict(enumerate(_LSB, 1)) | dict(enumerate(_BSD, 64))
_SIGNALS = {4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 11: "SEGV"}


def ended(code: str, status: int, name: str) -> list[tuple[float, str]]:
    result = {"exited": "exit-code", "killed": "signal", "dumped": "core-dump"}[code]
    return [
        (1.0, "Started An LLM."),
        (9.0, f"llm.service: Main process exited, code={code}, status={status}/{name}"),
        (9.1, f"llm.service: Failed with result '{result}'."),
    ]


@pytest.mark.parametrize("status", sorted({*range(1, 32), *_NAMES, 126, 127, 134, 135, 136, 139, 255}))
def test_an_exit_status_names_no_signal(status: int) -> None:
    found = verdict(journal(*ended("exited", status, _NAMES.get(status, "n/a"))))
    assert found.cause == "unsettled", found.summary
    assert "SIG" not in found.summary
    assert f"status {status}" in found.summary


@pytest.mark.parametrize("code", ["killed", "dumped"])
@pytest.mark.parametrize("status", sorted(_SIGNALS))
def test_a_signal_is_one(status: int, code: str) -> None:
    found = verdict(journal(*ended(code, status, _SIGNALS[status])))
    assert found.cause in ("segfault-or-abort", "cpu-illegal-instruction")
    assert f"SIG{_SIGNALS[status]}" in found.summary
