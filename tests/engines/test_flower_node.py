"""A client's own node: what it starts for messages has its imports done, and ends with it."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedopl.base.errors import FederationError, OptionError
from fedopl.demo.hospitals import three_hospitals
from fedopl.engines.flower.federation_watcher import marked
from fedopl.engines.flower.local_federation import FlowerNode, NodeFiles, program
from fedopl.engines.flower.warm_programs import can_fork

# As a SuperNode does, it finds the ClientApp on PATH.
SUPERNODE = """#!/bin/sh
cd {folder}
command -v flwr-clientapp > found
flwr-clientapp --help > printed
exit 4
"""


@pytest.fixture
def files(tmp_path):
    study = three_hospitals().write(tmp_path)
    for name in ("ca.crt", "north.key"):
        (tmp_path / name).touch()
    return NodeFiles(
        client=tmp_path / "clients" / "north",
        study=study,
        ca=tmp_path / "ca.crt",
        key=tmp_path / "north.key",
    )


@pytest.mark.skipif(not can_fork(), reason="the system cannot fork, or shows no marks")
def test_a_message_finds_the_warm_client_app_and_nothing_is_left(files, tmp_path, monkeypatch):
    supernode = tmp_path / "flower-supernode"
    supernode.write_text(SUPERNODE.format(folder=tmp_path))
    supernode.chmod(0o700)
    monkeypatch.setattr(
        "fedopl.engines.flower.local_federation.program",
        lambda name: str(supernode) if name == supernode.name else program(name),
    )
    with (
        FlowerNode("127.0.0.1:1", files) as node,
        pytest.raises(FederationError, match="exit code 4"),
    ):
        node.wait()
    found = Path((tmp_path / "found").read_text().strip())
    assert found != Path(program("flwr-clientapp"))
    assert not found.exists()
    assert "Run a Flower ClientApp" in (tmp_path / "printed").read_text()
    assert not marked(node._token)


def test_a_file_that_is_not_there_is_named(files, tmp_path):
    with pytest.raises(OptionError, match=r"north\.key: there is no such file"):
        replace(files, key=tmp_path / "elsewhere" / "north.key")
