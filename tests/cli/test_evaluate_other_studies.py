"""A policy of another study has learned from rows that it is valued on, which has to be said."""

import shutil

import pytest

from tiny_study import fedopl


@pytest.mark.parametrize("seed", [0, 5])
def test_a_policy_of_another_study_is_said_to_have_learned_from_these_rows(
    finished, tmp_path, seed
):
    other = tmp_path / "other.toml"
    other.write_text(f"seed = {seed}\n{finished.study.read_text()}")
    clients = shutil.copytree(finished.clients, tmp_path / "clients")  # their ledgers are read
    folders = ("--study", other, "--clients", clients)
    for policy in (finished.out, finished.out / "policy.json"):
        said = fedopl("evaluate", policy, *folders)
        assert said.code == 0
        assert ("was learned in another study" in said.err) == (seed != 0)
