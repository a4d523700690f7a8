import pytest

from tiny_study import fedopl, installed


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
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_small_reproduction_writes_tables_and_figures_and_the_same_bytes_again(tmp_path):
    arguments = ["reproduce", "homogeneous", "--seeds", "1", "--rows", "200"]
    arguments += ["--out", tmp_path / "first"]
    done = installed(*arguments, "--workers", "2")
    assert done.code == 0, done.err
    csv = tmp_path / "first" / "regrets-default.csv"
    figure = tmp_path / "first" / "homogeneous-variance-default.png"
    assert done.out.splitlines() == [str(csv), str(figure)]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert csv.read_text().count("\n") == 1 + 2 * 2 * (3 + 3 + 2 * 2)
    # A run that was stopped goes on, here without workers: one cell is gone, one is there.
    kept, gone = sorted((tmp_path / "first" / "cells").iterdir())
    before = kept.stat().st_mtime_ns
    gone.unlink()
    expected = csv.read_bytes()
    csv.unlink()
    assert fedopl(*arguments, "--workers", "1").code == 0
    assert csv.read_bytes() == expected
    assert kept.stat().st_mtime_ns == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = fedopl(
        "reproduce", "homogeneous", "--seeds", "1", "--rows", "100", "--out", tmp_path / "file"
    )
    assert done.code == 1
    assert done.err.startswith("fedopl: ")
    assert "cannot be written" in done.err
