"""Offline policy learning for one party, with scikit-learn's conventions."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedopl.base.errors import DataError
from fedopl.base.known_shares import Chances
from fedopl.client.scoring.cross_fit import cross_fit
from fedopl.client.scoring.scores import aipw_scores
from fedopl.client.scoring.values import estimate_value
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.learn import learn
from fedopl.policies.policy import Policy, checked_contexts


class PolicyLearner(BaseEstimator):  # type: ignore[misc]
    """`fit(X, A, Y, propensity=…)` learns a policy, `predict(X)` says which action to take.

    `score(X, A, Y, propensity=…)` estimates the policy's value on rows it did not learn from.

    Parameters are those of `fedopl.learn`; `fit` checks them.
    """

    def __init__(
        self,
        *,
        policy: object = "linear",
        basis: object = "auto",
        nuisances: object = "federated",
        evaluation: object = 0.25,
        action_names: Sequence[object] | None = None,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.basis = basis
        self.nuisances = nuisances
        self.evaluation = evaluation
        self.action_names = action_names
        self.seed = seed

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        A: ArrayLike,  # noqa: N803
        Y: ArrayLike,  # noqa: N803
        *,
        propensity: ArrayLike | Chances | None = None,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn from contexts X, actions A and rewards Y; higher rewards are better."""
        data = LoggedData(
            X, A, Y, propensity, action_names=self.action_names, weights=weights, groups=groups
        )
        options: dict[str, Any] = self.get_params()
        del options["action_names"]
        self.run_ = learn({"all": data}, **options)
        self.policy_: Policy | None = self.run_.policy
        self.classes_ = _classes(A, data)
        self.n_features_in_ = data.n_features
        # As in scikit-learn, only if columns have names; names of an earlier fit are removed.
        if hasattr(X, "columns"):
            self.feature_names_in_: NDArray[Any] = np.array(data.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The action to take in each context, as labelled in A."""
        check_is_fitted(self)
        assert self.policy_ is not None  # noqa: S101
        return self.classes_[self.policy_.decide(X)]

    def score(
        self,
        X: ArrayLike,  # noqa: N803
        A: ArrayLike,  # noqa: N803
        Y: ArrayLike,  # noqa: N803
        *,
        propensity: ArrayLike | Chances | None = None,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> float:
        """The policy's estimated value on other logged rows: more is better.

        Nuisances are fitted on these rows, by the learner's settings. On the rows that it was
        learned from, the policy looks better than it is. `fedopl.estimate_value` also gives the
        standard error.
        """
        check_is_fitted(self)
        assert self.policy_ is not None  # noqa: S101
        names, features = self.policy_.action_names, self.policy_.feature_names
        data = LoggedData(
            checked_contexts(X, features),
            A,
            Y,
            propensity,
            action_names=names,
            feature_names=features,
            weights=weights,
            groups=groups,
        )
        plan = self.run_.study.nuisances
        nuisances = cross_fit(
            data,
            outcome=plan.outcome_model if plan.regressor is None else plan.regressor,
            propensity=plan.propensity,
            folds=plan.folds,
            seed=self.seed,
        )
        scores = aipw_scores(data, nuisances, clip=plan.clip)
        found = estimate_value(scores, self.policy_.decide(data.contexts))
        if found.n_rows < data.n_rows:
            raise DataError(
                f"score: {data.n_rows - found.n_rows:,} of {data.n_rows:,} rows have no score for "
                "the action that the policy takes there, as too few rows took it; give more rows"
            )
        return found.value


def _classes(actions: ArrayLike, data: LoggedData) -> NDArray[Any]:
    """The labels as given, in the order of their codes; an action never taken has its name."""
    given = np.asarray(actions)
    labels = np.array(data.action_names, dtype=object)
    for code in np.unique(data.actions):
        labels[code] = given[np.argmax(data.actions == code)]
    return np.array(labels.tolist())  # an array of the labels' own type, not of objects
