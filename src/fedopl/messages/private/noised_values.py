"""The values of policies on held-out rows, in a study with differential privacy."""

from typing import Annotated, Any

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES
from fedopl.messages.message import AnswerType, Array, Asked, Axis, Message, message
from fedopl.messages.sensitivity import UNMOVED, Moves, beyond_rows
from fedopl.study.private.added_up import adds_under_masks
from fedopl.study.private.private_setting import N_VALUED, PrivateSetting
from fedopl.study.study import Study


def n_own_candidates(study: Study) -> int:
    """The number of further candidates: what was done, and without masks the own policy."""
    return N_OWN_CANDIDATES - adds_under_masks(study)


def _sums_move(study: Study) -> float:
    return PrivateSetting(study).longest_scores


def _squares_move(study: Study) -> float:
    """How far a row moves squares: the Frobenius length of zzᵀ is |z|²."""
    return PrivateSetting(study).longest_scores ** 2


@message
class NoisedValues(Message, code=92):
    """Σ z and Σ zzᵀ over held-out rows, with noise.

    z are scores of candidates, in half-ranges of the outcome, rotated so that noise is small where
    it matters: `score_axes`.
    """

    n_rows: Annotated[int, UNMOVED, PerClient]
    sums: Annotated[Array, (Axis.CANDIDATES,), Moves(_sums_move, "values"), PerClient]
    squares: Annotated[
        Array, (Axis.CANDIDATES, Axis.CANDIDATES), Moves(_squares_move, "value squares"), PerClient
    ]


@message
class AsksForNoisedValues(AsksAboutPolicies[AnswerType]):
    """Ask for the values of policies on held-out rows, with these outcome models, with noise."""

    content = "sums of scores of what policies decide, and of their squares"
    models: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]

    def arrays(self) -> list[Array]:
        """Policies as well: whether numbers overflow must not depend on rows."""
        return [held for _, held in self.named_arrays()]

    def is_plausible(self, study: Study) -> bool:
        """Check the number of policies, for which the noise is set."""
        return self.n_policies == N_VALUED and super().is_plausible(study)

    def fault_in(self, answer: Any, study: Study, _n_rows: int) -> str | None:
        """Check for one sum per candidate, none larger than the held-out rows and noise allow."""
        n_candidates = self.n_policies + n_own_candidates(study)
        if len(answer.sums) != n_candidates or answer.squares.shape != (n_candidates,) * 2:
            return f"valued {len(answer.sums)} policies of {n_candidates}"
        if answer.n_rows <= 0:
            return "valued policies on no rows"
        return beyond_rows(answer, study, answer.n_rows)


@message
class ValuePrivately(
    AsksForNoisedValues[NoisedValues], code=28, asked=Asked.EACH, permission="values"
):
    """Value policies on held-out rows, with these outcome models."""

    title = "What policies are worth, with noise"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study has differential privacy and held-out rows."""
        return study.privacy is not None and study.evaluation.share > 0

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """One number for each candidate, and for every two."""
        n_candidates = self.n_policies + n_own_candidates(study)
        return {"sums": (n_candidates,), "squares": (n_candidates, n_candidates)}


@message
class ValuesApart(Message, code=122):
    """The values of one client, under masks: read unmasked, with all the noise of the promise."""

    n_rows: Annotated[int, UNMOVED, PerClient]
    sums: Annotated[Array, (Axis.CANDIDATES,), Moves(_sums_move, "values apart"), PerClient]
    squares: Annotated[
        Array,
        (Axis.CANDIDATES, Axis.CANDIDATES),
        Moves(_squares_move, "value squares apart"),
        PerClient,
    ]


@message
class ValueApart(AsksForNoisedValues[ValuesApart], code=56, asked=Asked.EACH, permission="values"):
    """Ask to value the same policies once more, to be read for each client separately."""

    title = "What policies are worth at each client, with noise"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether answers are masked, and the study reads values of each client separately."""
        return study.privacy is not None and study.privacy.values_apart > 0
