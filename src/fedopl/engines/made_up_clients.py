"""Clients with made-up rows of a study's shape, to rehearse what a run costs.

What is made up has the study's columns and nothing else of its rows: numbers are normal, labels and
actions equally likely, and outcomes linear.
"""

from collections.abc import Callable

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.client_factory import ClientFactory
from fedopl.policies.tree_columns import LevelColumn
from fedopl.secure.keys import Identity
from fedopl.study.guardrail import guarded_columns
from fedopl.study.mixture import Empirical
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.study import Study

MADE_UP_SECRET = "of made-up clients"  # noqa: S105  (it protects nobody)


def made_up_clients(study: Study, n_clients: int, n_rows: int) -> ClientFactory:
    """So many clients with so many rows each, made when they are asked."""
    return ClientFactory(names_of(n_clients), _maker(study, n_rows))


def names_of(n_clients: int) -> list[str]:
    """What made-up clients are called, in sorted order."""
    width = len(str(n_clients - 1))
    return [f"{place:0{width}d}" for place in range(n_clients)]


def study_for(study: Study, n_clients: int, lacking: int = 0) -> Study:
    """The study with so many made-up clients in place of those that it names, all alike.

    Under masks, so many of them may be lacking.
    """
    counts = "weight" if study.mixture.counts_weight else "rows"
    others: dict[str, object] = {"mixture": Empirical(count=counts)}
    if study.privacy and study.privacy.is_secure:
        keys = {
            n: Identity(PrivateDraws(0, n, MADE_UP_SECRET).key).public for n in names_of(n_clients)
        }
        plan = study.privacy.model_dump() | {"keys": keys, "dropouts": lacking}
        plan["colluders"] = min(study.privacy.colluders, 1)
        others["privacy"] = PrivacyPlan.model_validate(plan)
    return study.model_copy(update=others)


def _maker(study: Study, n_rows: int) -> Callable[[str], LoggedData]:
    centres, units = _places(study)
    rng = generator_for(study.seed, purpose="made-up effects")
    slopes = rng.normal(size=(study.n_actions, study.n_features)) / np.sqrt(study.n_features)
    table = study.table
    most = study.declared.reward or 1.0
    low, high = study.privacy.outcome if study.privacy else (-most, most)
    outcomes = table.outcomes if table else guarded_columns(study)

    def make(name: str) -> LoggedData:
        rng = generator_for(study.seed, client=name, purpose="made-up rows")
        drawn = rng.normal(size=(n_rows, study.n_features))
        contexts = _with_labels(study, centres + units * drawn, rng)
        actions = np.arange(n_rows) % study.n_actions
        means = np.einsum("ip,ip->i", drawn, slopes[actions])
        rewards = (low + high) / 2 + (high - low) / 2 * np.tanh(means + rng.normal(size=n_rows))
        return LoggedData(
            contexts,
            actions,
            rewards,
            np.full(n_rows, 1 / study.n_actions) if study.knows_propensities else None,
            action_names=study.actions,
            feature_names=study.features,
            weights=np.ones(n_rows) if table and table.weight else None,
            groups=np.arange(n_rows) if table and table.group else None,
            outcomes={name: rng.random(n_rows) for name in outcomes},
            schema=table,
        )

    return make


def _places(study: Study) -> tuple[FloatArray, FloatArray]:
    """The middle and the spread of every feature, from what the study says of it."""
    centres, units = np.zeros(study.n_features), np.ones(study.n_features)
    known = {
        name: list(knots) for name, knots in (study.basis.knots if study.basis else {}).items()
    }
    if study.privacy:
        known |= {name: list(ends) for name, ends in study.privacy.ranges.items()}
    for place, name in enumerate(study.features):
        if said := known.get(name):
            centres[place] = (min(said) + max(said)) / 2
            units[place] = (max(said) - min(said)) / 3 or 1.0
    return centres, units


def _with_labels(study: Study, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The contexts, in which every column of labels has one of its levels."""
    for column in study.columns:
        if isinstance(column, LevelColumn):
            levels = rng.integers(len(column.features) + 1, size=len(contexts))
            for place, feature in enumerate(column.features, start=1):
                contexts[:, feature] = levels == place
    return contexts
