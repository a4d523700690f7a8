import zlib
from dataclasses import replace

import numpy as np
import pytest

from fedopl.reproduction import claims, experiment_cells
from fedopl.reproduction.experiment_cells import Cell, Regret
from fedopl.reproduction.run_cells import FIGURES, as_csv, curves, draw, run_cells


@pytest.fixture(scope="module")
def cell():
    made = Cell.of("heterogeneous", "sd", "default", 400, 0)
    return made, experiment_cells.compute(made)


def by_key(found):
    return {(r.mixture, r.policy, r.where, r.against): r.regret for r in found}


def test_a_cell_has_every_curve_of_the_paper(cell):
    keys = set(by_key(cell[1]))
    for against in ("optimum", "reference"):
        for mixture in ("empirical", "skewed"):
            for where in ("global", "client 1", "client 2"):
                assert (mixture, "global", where, against) in keys
        assert ("empirical", "pooled", "global", against) in keys
        for client in ("client 1", "client 2"):
            for policy in ("local", "hieropo"):
                assert ("", policy, client, against) in keys


def test_no_policy_beats_the_optimum(cell):
    assert min(r.regret for r in cell[1] if r.against == "optimum") > -1e-9


def test_both_readings_of_the_homogeneous_world_are_one_cell():
    assert Cell.of("homogeneous", "sd", "default", 100, 0) == Cell.of(
        "homogeneous", "variance", "default", 100, 0
    )


def test_a_damaged_cell_is_computed_again_to_the_same_numbers(tmp_path, cell):
    made, found = cell
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / f"{made.name}.json").write_text('[{"mixture": "empirical"')
    told = []
    assert run_cells([made], tmp_path, told.append, 1) == {made: found}
    assert (told[-1].done, told[-1].total) == (1, 1)
    assert run_cells([made], tmp_path, told.append, 1) == {made: found}
    assert len(told) == 1


def test_the_table_is_tidy(cell):
    text = as_csv(dict([cell]))
    header, first, *_ = text.splitlines()
    assert header == "kind,reading,pipeline,n_rows,seed,mixture,policy,where,against,regret"
    assert first.startswith("heterogeneous,sd,default,400,0,")


def invented(make):
    """A table of regrets by a formula instead of by learning."""
    table = {}
    for cell in claims.cells_for_claims("sd", "default", 40):
        noise = np.random.default_rng(cell.seed + cell.n_rows).normal(0, 0.01)
        table[cell] = [
            Regret(
                mixture=m,
                policy=p,
                where=w,
                against="optimum",
                regret=make(cell, m, p, w) + abs(noise),
            )
            for m, p, w in [
                ("empirical", "global", "global"),
                ("empirical", "pooled", "global"),
                ("empirical", "global", "client 1"),
                ("empirical", "global", "client 2"),
                ("skewed", "global", "client 1"),
                ("skewed", "global", "client 2"),
                ("", "local", "client 1"),
                ("", "hieropo", "client 1"),
            ]
        ]
    return table


def test_verdicts_follow_the_numbers():
    def as_the_paper_says(cell, mixture, policy, where):
        if cell.kind == "homogeneous":
            return 0.1
        base = 100 / cell.n_rows
        extra = {
            ("empirical", "global", "client 1"): 0.5,
            ("skewed", "global", "client 1"): 0.1,
            ("skewed", "global", "client 2"): 0.1,
            ("", "local", "client 1"): 0.3,
            ("", "hieropo", "client 1"): 0.1 if cell.n_rows < 3000 else 0.9,
        }
        return base + extra.get((mixture, policy, where), 0.0)

    judged = claims.judge(invented(as_the_paper_says), "sd", "default")
    assert {j.claim: j.verdict for j in judged} == dict.fromkeys(
        ["a", "b1", "b2", "b3", "c1", "c2", "d1", "d2", "pooled", "rate"], "holds"
    )
    (small,) = [j for j in judged if j.claim == "b2"]
    assert "n = 300" in small.quantity
    assert small.turns.startswith("turns from n = 3,000 on (n = 3,000 fails: -0.6000 ± 0.")
    assert not any(j.turns for j in judged if j is not small)
    opposite = claims.judge(invented(lambda *key: 1 - as_the_paper_says(*key)), "sd", "default")
    verdicts = {j.claim: j.verdict for j in opposite}
    assert {verdicts[c] for c in ("b1", "b2", "b3", "c1", "c2", "d2", "rate")} == {"fails"}

    def at_random(cell, *key):
        return zlib.crc32(f"{cell.seed} {key}".encode()) % 1000

    noise = claims.judge(invented(at_random), "sd", "default")
    assert {j.verdict for j in noise if j.claim in ("b1", "c1", "d2")} == {"undecided"}
    text = claims.as_markdown({("sd", "default"): judged})
    assert text.count("**holds**") == 10
    assert "n = 300; turns from n = 3,000 on" in text


def test_a_figure_has_four_lines_and_is_a_picture(tmp_path, cell):
    (figure,) = FIGURES["skewed"]
    table = dict([cell])
    narrowed = replace(figure, grid=(400,))
    lines = curves(table, narrowed, "sd", "default")
    assert [regrets.shape for _, regrets in lines.values()] == [(1, 1)] * 4
    path = draw(table, narrowed, "sd", "default", tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.with_suffix(".svg").exists()
