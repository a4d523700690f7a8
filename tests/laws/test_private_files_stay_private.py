"""What a client and a run keep to themselves lies where it should, for its owner alone."""

import os
import stat

import pytest
from racing_client import ask_for_values, door_in, score_rows

import fedopl
from fedopl.base.errors import StorageError
from fedopl.base.files import ANYBODY_HERE
from fedopl.client.disclosure.ledger import FileLedger
from fedopl.client.disk.store import FolderStore
from fedopl.engines.run import run
from tiny_study import fedopl as command
from tiny_study import write_tiny

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links are those of Unix")


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny")


@pytest.fixture
def open_folders(tmp_path):
    """Folders from here up that everybody may enter, as those of a shared machine may be."""
    closed = [f for f in (tmp_path, *tmp_path.parents) if not f.stat().st_mode & stat.S_IXOTH]
    modes = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in closed}
    for folder, mode in modes.items():
        folder.chmod(mode | 0o011)
    yield
    for folder, mode in modes.items():
        folder.chmod(mode)


# --- links --------------------------------------------------------------------------------------


def test_a_ledger_that_is_a_link_is_neither_written_nor_read(tmp_path):
    target = tmp_path / "somebody's file"
    target.write_text("")
    (tmp_path / "ledger.jsonl").symlink_to(target)
    assert score_rows(door_in(tmp_path)) == "FAILED"
    assert target.read_bytes() == b""
    with pytest.raises(StorageError, match="is a symbolic link"):
        FileLedger(tmp_path / "ledger.jsonl").entries()


def test_a_ledger_that_is_a_link_to_nothing_makes_no_file_there(tmp_path):
    (tmp_path / "ledger.jsonl").symlink_to(tmp_path / "nowhere")
    assert score_rows(door_in(tmp_path)) == "FAILED"
    assert not (tmp_path / "nowhere").exists()


def test_a_store_that_is_a_link_is_neither_written_nor_read(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "scores").symlink_to(tmp_path / "elsewhere")
    assert score_rows(door_in(tmp_path)) == "FAILED"
    assert not list((tmp_path / "elsewhere").iterdir())
    with pytest.raises(StorageError, match="is a symbolic link"):
        FolderStore(tmp_path / "scores").get("key")


def test_a_file_of_the_store_that_is_a_link_is_not_believed(tmp_path):
    door = door_in(tmp_path)
    assert score_rows(door) == "ScoreSums"
    for file in [*(tmp_path / "scores").iterdir()]:
        moved = file.rename(tmp_path / file.name)
        file.symlink_to(moved)
    assert ask_for_values(door_in(tmp_path), 1) == "FAILED"


@pytest.mark.parametrize("name", ["ledger.jsonl", "scores"])
@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_link_is_named_with_what_to_do_before_anything_is_asked(tiny, name, verb):
    path = tiny.clients / "north" / name
    path.symlink_to(tiny.folder / "elsewhere")
    done = tiny.run() if verb == "run" else tiny.check()
    assert done.code == 1
    said = " ".join(done.text.split())
    assert f"{path}: is a symbolic link" in said
    assert "replace the link by what it leads to" in said
    assert not (tiny.clients / "west" / "ledger.jsonl").exists()


# --- modes --------------------------------------------------------------------------------------


def loosened(tiny, mode):
    tiny.settings().write_text(
        'secret = "6382b3cc881412b77bfcaeed026001c00d9e3025e66c20f6e7e92f079851462a"\n'
        + tiny.settings().read_text()
    )
    tiny.settings().chmod(mode)
    return f"{tiny.settings()}: holds the secret and can be read by"


@pytest.mark.usefixtures("open_folders")
@pytest.mark.parametrize(("mode", "who"), [(0o644, ANYBODY_HERE), (0o640, "its group")])
def test_a_secret_that_others_can_read_is_named_with_the_remedy(tiny, mode, who):
    said = f"{loosened(tiny, mode)} {who}; chmod 600 {tiny.settings()}"
    assert said in " ".join(tiny.check().out.split())
    done = tiny.run()
    assert done.code == 0
    assert said in " ".join(done.err.split())


@pytest.mark.usefixtures("open_folders")
def test_nothing_is_said_of_a_secret_that_only_its_owner_can_read(tiny):
    said = loosened(tiny, 0o600)
    assert said not in " ".join(tiny.check().out.split())


def test_a_file_in_a_folder_that_nobody_else_may_enter_is_not_loose(tiny):
    tiny.folder.chmod(0o700)
    said = loosened(tiny, 0o644)
    assert said not in " ".join(tiny.check().out.split())


@pytest.mark.usefixtures("open_folders")
def test_rows_that_everybody_can_read_are_a_hint_of_the_check_and_no_problem(tiny):
    tiny.table().chmod(0o644)
    for name in ("south", "west"):
        tiny.table(name).chmod(0o640)
    done = tiny.check()
    assert done.code == 0
    said = (
        f"can be read by everybody on this machine; if they should not be: chmod o-r {tiny.table()}"
    )
    assert said in " ".join(done.out.split())
    assert done.out.count("chmod o-r") == 1


def test_sums_and_the_journal_of_a_run_are_for_their_owner_whatever_the_umask(tiny):
    before = os.umask(0)
    try:
        assert tiny.run().code == 0
    finally:
        os.umask(before)
    private = [
        tiny.out / "sums.npz",
        tiny.out / "ledger.jsonl",
        *(tiny.out / "exchanges").iterdir(),
    ]
    private += [tiny.clients / "north" / "ledger.jsonl", *(tiny.clients / "north/scores").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


def test_the_example_of_a_client_file_is_for_its_owner(tmp_path):
    assert command("init", tmp_path / "new").code == 0
    path = tmp_path / "new" / "clients" / "north" / "client.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_lock_on_a_link_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "victim")
    tiny = write_tiny(tmp_path / "tiny")
    with pytest.raises(fedopl.FedoplError, match="is a symbolic link"):
        run(tiny.study, tiny.clients, out=tmp_path / "run", resume=True)
    assert not (tmp_path / "victim").exists()
