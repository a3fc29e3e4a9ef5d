"""A load run on the terminal."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from tests.report import bench_documents as made

from draftmark.report.bench_table import print_bench


def test_the_first_line_says_which_loop_it_was(screen: Any) -> None:
    for run, said in ((made.closed_run(), "Closed loop: "), (made.open_run(), "Open loop: ")):
        printed = screen()
        print_bench(made.documented(run)[0], printed.console)
        assert printed.lines[0].startswith(said)
        assert max(cell_len(line) for line in printed.lines) <= 80


def test_an_open_loop_tells_what_waiting_comes_to(screen: Any) -> None:
    printed = screen(width=100)
    print_bench(made.documented(made.open_run())[0], printed.console)
    assert "chat, 20 requests/s (poisson), at most 8 at once" in printed.text
    headline, plain = [line.split() for line in printed.lines if "first token" in line or "real send" in line][:2]
    assert float(headline[-1]) > 400 > float(plain[-1])
    assert "waiting to be sent" in printed.text
    assert "errors: 1 http-503, 1 reset; 3 not sent (the run was stopped)" in printed.flat
    assert "requests a second: 20 wanted, 20" in printed.flat
    assert "within ttft 500 ms, tpot 30 ms, e2e 9000 ms" in printed.flat


def test_kinds_of_text_intervals_and_repetitions(screen: Any) -> None:
    printed = screen(width=100)
    print_bench(made.documented(made.closed_run(), made.closed_run())[0], printed.console)
    assert "120 requests in 2 runs of" in printed.text
    assert "another run, 19 times in 20 (p50): tok/s" in printed.flat
    for kind in ("coding", "roleplay", "maths"):
        (row,) = [line for line in printed.lines if line.strip().startswith(kind)]
        assert row.split()[1] == "40"


def test_a_run_that_was_stopped_says_so_in_its_last_line(screen: Any) -> None:
    document = made.documented(made.closed_run())[0]
    document["levels"][0] |= {"stopped_because": "stopped by SIGINT", "cut": 3}
    printed = screen()
    print_bench(document, printed.console)
    assert "3 requests cut short by us" in printed.flat
    assert printed.lines[-1].endswith("tok/s, stopped by SIGINT")
