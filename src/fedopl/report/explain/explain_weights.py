"""Explains linear and pairwise policies: what favours each action, and how strongly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.tables import text_table
from fedopl.policies.allowed.permissions import OTHER
from fedopl.policies.linear import LinearPolicy
from fedopl.report.explain.groups import overall, shares_of
from fedopl.report.words.numbers import listed
from fedopl.results.record import Record

STRONG = 0.25  # of the largest effect: what is worth a word
MOST_WORDS = 4  # features that a sentence names
_NEXT_TO_NOBODY = 0.005  # of the rows that decisions were counted over

Against = Literal["mean", "other", "nothing"]
Standardisation = tuple[FloatArray, FloatArray]  # mean and standard deviation of every feature


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """How much one step of each feature favours each action, or the first action of a pair.

    Only differences between the scores of actions decide. So each action is compared with the mean
    of all: no action is special, and what is added to every score alike drops out. Two actions make
    one comparison.
    """

    names: tuple[str, ...]  # (n_scores,) an action, or 'a over b'
    spoken: tuple[str, ...]  # (n_scores,) the same with quotation marks
    features: tuple[str, ...]
    effects: FloatArray  # (n_scores, n_features)
    step: str  # 'standard deviation' or 'unit'
    against: Against  # what each score is held against
    never: tuple[str, ...]  # actions that nobody has scores for
    typical: str | None  # the action of somebody average in everything, where that is known
    yes_no: BoolArray  # (n_features,)
    levels: dict[str, tuple[str, str]]  # feature → column and level, where it stands for a level
    rarely: tuple[str, ...] = ()  # actions that next to nobody gets, as far as that was counted

    @property
    def is_constant(self) -> bool:
        """Whether no feature matters."""
        return not self.effects.any()

    def is_seldom(self, spoken: str) -> bool:
        """Whether next to nobody gets one of the actions that are compared in this name."""
        return not {f"'{name}'" for name in self.rarely}.isdisjoint(spoken.split(" over "))


def explain_weights(policy: LinearPolicy, record: Record | None = None) -> Explanation:
    """The policy's weights per unit; with the run it came from, per standard deviation."""
    if record is None:
        return weights_by_step(policy)
    found = weights_by_step(policy, record.statistics.standardisation(record.mixture))
    if record.described is None:
        return found
    shares = shares_of(overall(record.described).decided)
    names = zip(record.study.actions, shares, strict=True)
    return replace(found, rarely=tuple(name for name, share in names if share < _NEXT_TO_NOBODY))


def weights_by_step(
    policy: LinearPolicy, standardisation: Standardisation | None = None
) -> Explanation:
    """The policy's weights per unit, or per standard deviation if deviations are known."""
    pairs, effects = policy.contrasts()
    features = policy.term_names if policy.bends else policy.feature_names
    width = len(features)
    effects = effects[:, :width]
    yes_no, typical = np.zeros(width, bool), None
    if standardisation:
        centre, scale = (of_all[:width] for of_all in standardisation)
        effects = effects * scale
        # For a column of zeros and ones, and only for such a column, the mean square is the mean.
        yes_no = np.isclose(centre**2 + scale**2, centre, rtol=1e-9, atol=0)
        typical = str(policy.names(centre[None, : len(policy.feature_names)], client=OTHER)[0])
    columns = policy.encoding.categorical if policy.encoding else {}
    against: Against = "nothing" if policy.has_blocks else "mean"
    if any(len(pair) == 2 for pair in pairs):
        against = "other"
    return Explanation(
        names=tuple(" over ".join(pair) for pair in pairs),
        spoken=tuple(" over ".join(f"'{action}'" for action in pair) for pair in pairs),
        features=features,
        effects=effects,
        step="standard deviation" if standardisation else "unit",
        against=against,
        never=policy.never_chosen,
        typical=typical,
        yes_no=yes_no,
        levels={
            f"{column}={level}": (column, level)
            for column, levels in columns.items()
            for level in levels[1:]
        },
    )


def weights_as_text(policy: LinearPolicy, record: Record | None, top: int) -> str:
    """The sentences, then the `top` strongest features for each action."""
    found = explain_weights(policy, record)
    words = "\n".join(weight_sentences(found))
    if found.is_constant:
        return words
    rows = [
        [name, found.features[f], f"{effects[f]:+.4g}"]
        for name, effects in zip(found.names, found.effects, strict=True)
        for f in np.argsort(-np.abs(effects), kind="stable")[:top]
        if effects[f]
    ]
    table = text_table(["action", "feature", f"one {found.step} more adds"], rows)
    return f"{words}\n\n{table}"


def weights_as_json(policy: LinearPolicy, record: Record | None) -> dict[str, Any]:
    """The sentences and all effects, as JSON."""
    found = explain_weights(policy, record)
    effects = zip(found.names, found.effects.tolist(), strict=True)
    return {
        "sentences": weight_sentences(found),
        "step": found.step,
        "effects": {name: dict(zip(found.features, own, strict=True)) for name, own in effects},
    }


def weight_sentences(explanation: Explanation) -> list[str]:
    """One sentence for each action, or for each pair of actions, then further remarks."""
    return favouring(explanation, [_words(explanation, n) for n in range(len(explanation.names))])


def favouring(
    explanation: Explanation, words: list[list[str]], elsewhere: Sequence[bool] = ()
) -> list[str]:
    """The same sentences, with `words` for what favours each action, or the first of each pair.

    `elsewhere` says about which of them other sentences say more.
    """
    found = ["No feature plays a part: everybody gets the same."]
    if not explanation.is_constant:
        found = _by_score(explanation, words, elsewhere)
    found += [
        f"'{action}' is never chosen: no client has a score for it." for action in explanation.never
    ]
    seldom = [f"'{name}'" for name in explanation.rarely if name not in explanation.never]
    if seldom and not explanation.is_constant:
        verb = "is" if len(seldom) == 1 else "are"
        found.append(
            f"{listed(seldom)} {verb} given to nobody, or next to nobody: nothing favours it "
            "strongly enough."
        )
    if explanation.typical is not None and not explanation.is_constant:
        found.append(f"Somebody average in every feature gets '{explanation.typical}'.")
    return found


def _by_score(
    explanation: Explanation, words: list[list[str]], elsewhere: Sequence[bool]
) -> list[str]:
    # What favours an action that no row gets has no effect on decisions.
    spoken = zip(explanation.spoken, words, strict=True)
    kept = {name: own for name, own in spoken if not explanation.is_seldom(name)}
    found = [f"{name} is favoured by {listed(own)}." for name, own in kept.items() if own]
    covered = {name for name, more in zip(explanation.spoken, elsewhere, strict=False) if more}
    rest = [name for name, own in kept.items() if not own and name not in covered]
    if rest:
        verb = "hardly depends" if len(rest) == 1 else "hardly depend"
        found.append(f"{listed(rest)} {verb} on the features.")
    return found


def _words(explanation: Explanation, place: int) -> list[str]:
    """What favours an action most, relative to the strongest effect of all."""
    effects = explanation.effects[place]
    least = STRONG * float(np.abs(explanation.effects).max())
    order = np.argsort(-np.abs(effects), kind="stable")[:MOST_WORDS]
    return [step_word(explanation, f, effects[f] > 0) for f in order if abs(effects[f]) >= least]


def step_word(explanation: Explanation, feature: int, favours: bool) -> str:
    """Words for more or less of a feature: a level or another, yes or no, higher or lower."""
    name = explanation.features[feature]
    if name in explanation.levels:
        column, level = explanation.levels[name]
        return f"{column} '{level}'" if favours else f"{column} other than '{level}'"
    if explanation.yes_no[feature]:
        return f"{name} (yes)" if favours else f"{name} (no)"
    return f"{'higher' if favours else 'lower'} {name}"
