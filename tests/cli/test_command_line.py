import subprocess
import sys
from pathlib import Path

import pytest

FEDOPL = Path(sys.executable).with_name("fedopl")


def fedopl(*arguments, **options):
    return subprocess.run(
        [FEDOPL, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )


def test_help_is_quick_because_it_loads_nothing_heavy():
    program = (
        "import sys; sys.argv = ['fedopl', '--help']\n"
        "from fedopl.cli.app import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'sklearn', 'matplotlib', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "reproduce" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "everything"], "is not one of"),
        (["reproduce", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["reproduce", "--reading", "mad"], "is not one of"),
        (["learn"], "No such command"),
    ],
)
def test_a_users_mistake_is_one_message_and_no_traceback(arguments, message):
    done = fedopl(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_small_reproduction_writes_tables_and_figures_and_the_same_bytes_again(tmp_path):
    arguments = ["reproduce", "homogeneous", "--seeds", "1", "--rows", "200", "--workers", "2"]
    done = fedopl(*arguments, "--out", tmp_path / "first")
    assert done.returncode == 0, done.stderr
    csv = tmp_path / "first" / "regrets-default.csv"
    figure = tmp_path / "first" / "homogeneous-variance-default.png"
    assert done.stdout.splitlines() == [str(csv), str(figure)]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert csv.read_text().count("\n") == 1 + 2 * 2 * (3 + 3 + 2 * 2)
    # A run that was stopped goes on: one cell is gone, one is there.
    kept, gone = sorted((tmp_path / "first" / "cells").iterdir())
    before = kept.stat().st_mtime_ns
    gone.unlink()
    expected = csv.read_bytes()
    csv.unlink()
    assert fedopl(*arguments, "--out", tmp_path / "first").returncode == 0
    assert csv.read_bytes() == expected
    assert kept.stat().st_mtime_ns == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = fedopl(
        "reproduce", "homogeneous", "--seeds", "1", "--rows", "100", "--out", tmp_path / "file"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("fedopl: ")
    assert "cannot be written" in done.stderr
