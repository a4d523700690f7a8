"""The policies that a query asks about: a field for each kind, named by the kind itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, TypeVar

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.message import AnswerType, Array, Axis, Query, RowSplit, message
from fedopl.policies.kinds import KINDS, POLICY_FIELDS, RULES, in_message_order, packed
from fedopl.policies.policy import ByFold, Policy, Version, versions_of
from fedopl.study.study import Study
from fedopl.study.study_check import MOST_DIAGNOSED

Each = TypeVar("Each")
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
class AsksByFold(AsksAboutPolicies[AnswerType]):
    """Candidates that may each have a version for each fold, which is one of the policies.

    Candidates share policies: what is chosen fold by fold is, in each fold, a policy that may also
    be valued in all.
    """

    # The place of each version among the policies; nothing if each policy is for all rows.
    versions: Annotated[Array, (Axis.ASKED_BY_FOLD, Axis.OWN_FOLDS)] = field(
        default_factory=lambda: np.empty((0, 0))
    )

    @property
    def is_by_fold(self) -> bool:
        """Whether candidates have versions."""
        return bool(self.versions.shape[1])

    @property
    def n_asked(self) -> int:
        """How many candidates it asks about."""
        return len(self.versions) if self.is_by_fold else self.n_policies

    def of_candidates(self, policies: Sequence[Each]) -> list[list[Each]]:
        """The policies of each candidate, a version for each fold, or one if all are the same."""
        if not self.is_by_fold:
            return [[one] for one in policies]
        each = [own[:1] if len({*own}) == 1 else own for own in self.versions.astype(int).tolist()]
        return [[policies[place] for place in own] for own in each]

    def versions_fit(self, study: Study) -> bool:
        """Whether there is a version for each fold that the study values, and no policy besides."""
        if not self.is_by_fold:
            return not len(self.versions)
        is_each = study.evaluation.is_cross_fitted
        is_each = is_each and self.versions.shape[1] == study.nuisances.folds
        return is_each and {*self.versions.ravel().tolist()} == {*range(self.n_policies)}

    def is_one_valued(self, study: Study) -> bool:
        """Whether it is about one candidate, as policies of the study are valued."""
        is_valued = self.is_by_fold == study.evaluation.is_cross_fitted
        return is_valued and self.n_asked == 1 and self.versions_fit(study)


def fields_about(
    asked: Iterable[Version | ByFold], study: Study, known: Mapping[str, Policy] | None = None
) -> dict[str, Any]:
    """The fields of a query for values of these candidates, each in as many versions as valued.

    A name is that of a known policy, or of a rule of the study. A policy that is in several
    versions is carried once.
    """
    each = versions_of(asked, n_versions_in(study), known or {})
    if not study.evaluation.is_cross_fitted:
        return _carrying([one for (one,) in each], study)
    carried = {_key(one): one for own in each for one in own}
    places = {key: place for place, key in enumerate(in_message_order(carried))}
    versions = np.array([places[_key(one)] for own in each for one in own], np.float64)
    fields = _carrying([*carried.values()], study)
    return {"versions": versions.reshape(len(each), n_versions_in(study)), **fields}


def _carrying(carried: Sequence[Version], study: Study) -> dict[str, FloatArray]:
    policies = [one for one in carried if isinstance(one, Policy)]
    rules = [study.candidates.index(one) for one in carried if isinstance(one, str)]
    return packed(policies, study, rules)


def _key(version: Version) -> int | str:
    """The same for the same policy."""
    return version if isinstance(version, str) else id(version)


def n_versions_in(study: Study) -> int:
    """How many versions of a policy are valued: one for each fold, or one on held-out rows."""
    return study.nuisances.folds if study.evaluation.is_cross_fitted else 1


def valued_split(study: Study) -> RowSplit:
    """The rows that policies are valued on: held-out ones, or all if values are cross-fitted."""
    return RowSplit.EACH_FOLD if study.evaluation.is_cross_fitted else RowSplit.EVALUATION


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
