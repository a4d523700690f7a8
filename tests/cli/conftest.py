"""One demo and one small run, shared by everybody who only looks."""

import pytest

from tiny_study import installed, write_tiny


@pytest.fixture
def tiny(tmp_path):
    """A small study to be broken in one place."""
    return write_tiny(tmp_path / "tiny")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A small study that was run; nobody may change it."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished") / "tiny")
    done = tiny.run_and_draw("--json")
    assert (done.code, done.err) == (0, "")
    (tiny.folder / "said.json").write_text(done.out)
    return tiny


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The demo, run by the installed command; nobody may change it."""
    folder = tmp_path_factory.mktemp("demo") / "fedopl-demo"
    done = installed("demo", folder)
    assert (done.code, done.err) == (0, "")
    (folder / "said.txt").write_text(done.out)
    return folder
