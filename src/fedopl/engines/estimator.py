"""Offline policy learning for one party, with scikit-learn's conventions."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedopl.base.known_shares import Chances
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.learn import learn, refuse_moved
from fedopl.policies.policy import Policy


class PolicyLearner(BaseEstimator):  # type: ignore[misc]
    """`fit(X, A, Y, propensity=…)` learns a policy, `predict(X)` says which action to take.

    Parameters are those of `fedopl.learn`; they are checked when fitting.
    """

    def __init__(
        self,
        *,
        policy: object = "linear",
        nuisances: object = "federated",
        evaluation: object = 0.25,
        action_names: Sequence[object] | None = None,
        seed: int = 0,
        **moved: object,
    ) -> None:
        refuse_moved(moved, "PolicyLearner()")
        self.policy = policy
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
        """Learn from contexts X, actions A and rewards Y, of which more is better."""
        data = LoggedData(
            X, A, Y, propensity, action_names=self.action_names, weights=weights, groups=groups
        )
        options: dict[str, Any] = self.get_params()
        del options["action_names"]
        self.run_ = learn({"all": data}, **options)
        self.policy_: Policy | None = self.run_.policy
        self.classes_ = _classes(A, data)
        self.n_features_in_ = data.n_features
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The action to take in each context, as labelled in A."""
        check_is_fitted(self)
        assert self.policy_ is not None  # noqa: S101
        return self.classes_[self.policy_.decide(X)]


def _classes(actions: ArrayLike, data: LoggedData) -> NDArray[Any]:
    """The labels as they were given, in the order of their codes; names for those not taken."""
    given = np.asarray(actions)
    labels = np.array(data.action_names, dtype=object)
    for code in np.unique(data.actions):
        labels[code] = given[np.argmax(data.actions == code)]
    return np.array(labels.tolist())  # of the labels' own type, no longer objects
