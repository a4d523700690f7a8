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
        assert said.code == (seed == 0)
        assert ("was learned in another study" in said.err) == (seed != 0)
        assert ("was learned in this study" in said.err) == (seed == 0)


def test_where_nothing_is_held_out_all_rows_value_policies_of_other_rows(tiny, tmp_path):
    study = tiny.study.read_text()
    tiny.add('\n[evaluation]\nkind = "cross-fitted"\n')
    assert tiny.run().code == 0
    folders = ("--study", tiny.study, "--clients", tiny.clients)
    own = fedopl("evaluate", tiny.out, *folders)
    assert own.code == 1
    assert "was learned in this study, from all of the rows that would value it" in own.err
    copied = shutil.copy(tiny.out / "policy.json", tmp_path / "policy.json")
    said = fedopl("evaluate", copied, *folders)
    assert said.code == 0, said.text
    assert "assumes that none of the policies was learned from these rows" in said.out
    told = fedopl("evaluate", copied, *folders, "--json").json()
    assert (told["evaluation"], told["estimand"]) == ("cross-fitted", "policy")
    tiny.study.write_text(f"{study}\n[evaluation]\nshare = 0\n")
    nothing = fedopl("evaluate", copied, *folders)
    assert nothing.code == 1
    assert 'for policies that were learned from other rows kind = "cross-fitted"' in nothing.err
