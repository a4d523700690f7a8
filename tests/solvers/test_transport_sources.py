"""Values elsewhere, from what the target and sources told; who disagrees; who is like it."""

import numpy as np
import pytest

from fedopl.solvers.transport_sources import (
    SourcePart,
    combined_sources,
    disagreement,
    matching_mixture,
    screen,
    transported_by,
)


def part(means, variance=0.01, rows=100.0, known=None):
    means = np.asarray(means, float)
    known = np.ones(len(means), bool) if known is None else np.asarray(known)
    return SourcePart(
        means=means, covariances=variance * np.eye(len(means)), known=known, effective_rows=rows
    )


def test_sources_count_by_effective_rows():
    found = combined_sources({"a": part([0, 0, 0], rows=30), "b": part([4, 4, 4], rows=90)})
    assert found.means == pytest.approx([3, 3, 3])
    assert np.diagonal(found.covariances) == pytest.approx((1 / 16 + 9 / 16) * 0.01)
    assert found.effective_rows == 120


def test_the_order_of_sources_changes_no_bit():
    rng = np.random.default_rng(0)
    parts = {name: part(rng.standard_normal(3), rows=50 + 7 * i) for i, name in enumerate("abc")}
    turned = dict(reversed(parts.items()))
    assert combined_sources(parts).means.tobytes() == combined_sources(turned).means.tobytes()
    assert screen(parts, 0.5).left_out == screen(turned, 0.5).left_out


def test_a_column_that_one_source_lacks_is_the_others():
    lacking = part([1, 9, 1], known=[True, False, True])
    found = combined_sources({"a": lacking, "b": part([3, 2, 3])})
    assert found.means == pytest.approx([2, 2, 2])


def test_the_value_is_the_models_and_the_correction_and_so_is_its_variance():
    found = transported_by(
        part([1, 2, 3], 0.04), combined_sources({"a": part([0.5, 0.5, 0.5], 0.09)})
    )
    assert found.means == pytest.approx([1.5, 2.5, 3.5])
    assert np.diagonal(found.covariances) == pytest.approx(0.13)


def test_the_test_has_its_level_with_few_rows_whose_covariances_are_estimated():
    rng, n_rows, found = np.random.default_rng(0), 25, []
    for _ in range(1000):
        sources = []
        for _ in range(2):
            rows = rng.standard_normal((n_rows, 3))
            covariances = np.cov(rows.T) / n_rows
            sources.append(
                SourcePart(
                    means=rows.mean(axis=0),
                    covariances=covariances,
                    known=np.ones(3, bool),
                    effective_rows=n_rows,
                )
            )
        found.append(disagreement(*sources))
    assert 0.02 < np.mean(np.array(found) < 0.05) < 0.065


def test_the_odd_source_of_four_is_left_out_and_no_other():
    parts = {name: part([0, 0.05 * i, 0]) for i, name in enumerate("abc")} | {
        "odd": part([2, 2, 0])
    }
    found = screen(parts, 0.01)
    assert found.left_out == ("odd",)
    assert not found.disagree
    assert set(found.chances) == set(parts)
    assert found.chances["odd"] < 1e-6 < found.chances["a"]


def test_of_two_that_disagree_nobody_is_left_out_and_it_is_said():
    found = screen({"a": part([0, 0, 0]), "b": part([2, 2, 2])}, 0.01)
    assert found.left_out == ()
    assert found.disagree


def test_only_a_minority_is_left_out():
    parts = {name: part([i, 3.0 * i, -2.0 * i]) for i, name in enumerate("abcde")}
    found = screen(parts, 0.01)
    assert len(found.left_out) == 2
    assert found.disagree


def test_with_level_zero_nobody_is_left_out():
    found = screen({"a": part([0, 0, 0]), "b": part([9, 9, 9]), "c": part([0, 0, 0])}, 0.0)
    assert (found.left_out, found.disagree) == ((), False)


def test_one_source_has_nobody_to_disagree_with():
    found = screen({"a": part([0, 0, 0])}, 0.01)
    assert (found.left_out, found.disagree, dict(found.chances)) == ((), False, {})


def test_the_mixture_is_between_those_on_either_side_of_the_target():
    gaps = {"low": np.array([-1.0, 0.0]), "high": np.array([3.0, 0.0]), "far": np.array([0.0, 9.0])}
    found = matching_mixture(gaps, dict.fromkeys(gaps, 10_000))
    assert found["low"] == pytest.approx(0.75, abs=0.02)
    assert found["high"] == pytest.approx(0.25, abs=0.02)
    assert found["far"] == pytest.approx(0.0, abs=0.02)
    assert sum(found.values()) == pytest.approx(1.0)


def test_what_brings_it_no_nearer_costs_no_skewness():
    gaps = {"a": np.array([2.0, 0.01]), "b": np.array([2.0, -0.02]), "c": np.array([1.99, 0.0])}
    found = matching_mixture(gaps, dict.fromkeys(gaps, 200))
    assert found == pytest.approx(dict.fromkeys(gaps, 1 / 3), abs=0.02)


def test_where_all_are_alike_it_is_that_of_rows():
    rows = {"a": 100, "b": 300}
    found = matching_mixture({name: np.array([0.2, -0.1]) for name in rows}, rows)
    assert found == pytest.approx({"a": 0.25, "b": 0.75}, abs=1e-3)
