"""The policies that a query asks about: a field for each kind, named by the kind itself."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.message import AnswerType, Array, Axis, Query, RowSplit, message
from fedopl.policies.by_fold import ByFold, versions_of
from fedopl.policies.kinds import KINDS, POLICY_FIELDS, RULES, packed
from fedopl.policies.policy import Policy
from fedopl.study.message_sizes import MOST_DIAGNOSED
from fedopl.study.study import Study

# What would be learned without each of three clients: one of them is among the usual ones. And if
# values are by fold, best arms may be, too: of all clients, and without each of the three.
_LEFT_OUT, _ARMS_BY_FOLD = 2, 4


@message
class AsksAboutPolicies(Query[AnswerType]):
    """Policies as arrays in the order of the table of kinds, then positions of rules."""

    # Written by the kinds, so that a new kind of policy has its field without a line here.
    __annotations__ = {
        kind.message_field: Annotated[Array, tuple(Axis(axis) for axis in kind.message_axes)]
        for kind in KINDS.values()
    } | {RULES: Annotated[Array, (Axis.RULES,)]}  # positions among the candidates of the study

    @property
    def n_policies(self) -> int:
        """How many policies it carries."""
        return sum(len(getattr(self, field)) for field in POLICY_FIELDS)

    @property
    def n_asked(self) -> int:
        """How many candidates it asks about."""
        return self.n_policies

    def of_kind(self, kind: str) -> FloatArray:
        """The policies of one kind, as numbers."""
        return np.asarray(getattr(self, KINDS[kind].message_field))

    def arrays(self) -> list[FloatArray]:
        """All but the policies: whatever their numbers are, they come to actions and no more."""
        return [held for name, held in self.named_arrays() if name not in POLICY_FIELDS]

    def is_plausible(self, study: Study) -> bool:
        """Of all kinds together, no more candidates than the study can need."""
        return self.n_asked <= most_in_query(study) and super().is_plausible(study)


@message
class AsksAboutSplit(Query[AnswerType]):
    """The rows that an answer is about; as the last base of a query, its field is sent first."""

    split: RowSplit


def fields_about(
    policies: Iterable[Policy | ByFold], study: Study, rules: Sequence[int] = ()
) -> dict[str, Any]:
    """The fields of a query for values of these policies, each in as many versions as valued."""
    n_versions = n_versions_in(study)
    rules = [rule for rule in rules for _ in range(n_versions)]
    each = versions_of(policies, n_versions)
    return {"versions": n_versions, **packed(each, study, rules)}


def n_versions_in(study: Study) -> int:
    """How many versions of a policy are valued: one for each fold, or one on held-out rows."""
    return study.nuisances.folds if study.evaluation.is_cross_fitted else 1


def valued_split(study: Study) -> RowSplit:
    """The rows that policies are valued on: held-out ones, or all if values are cross-fitted."""
    return RowSplit.TRAINING if study.evaluation.is_cross_fitted else RowSplit.EVALUATION


def most_candidates(study: Study) -> int:
    """How many policies a study compares: constant arms, its own, and two more.

    Where joining is judged, there are those of coalitions, mixtures and contrasts, too.
    """
    own = study.n_actions + len(study.candidates) + 2
    return max(own, MOST_DIAGNOSED) if study.joining.diagnose else own


def most_in_query(study: Study) -> int:
    """How many policies one query may ask about: these, and those without one client."""
    by_fold = _ARMS_BY_FOLD if study.evaluation.is_cross_fitted else 0
    return most_candidates(study) + _LEFT_OUT + by_fold
