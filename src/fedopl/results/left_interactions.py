"""Which features act together in what both models miss, from what clients told of products.

Where one of the two models is right, its statistics are chance, whatever those of the other are.
With z what a client told of weights and y of residuals, Σz·y / √max(Σz², Σy²) over clients is then
at most a standard normal number. So first only products are kept that some model surely misses;
then it is tested, for all that are kept together, whether the other misses them too (Djordjilović
et al. 2019, `ScreenMin`).
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.labels import GLOBAL
from fedopl.messages.evaluation.interactions_left import feature_products, product_in
from fedopl.results.model_doubts import stated_error
from fedopl.study.mixture import renormalised

if TYPE_CHECKING:
    from fedopl.messages.evaluation.interactions_left import InteractionsLeft
    from fedopl.results.record import Record

# At most, where one model is right and the other surely wrong; far less where both are right.
_FALSE_ALARM = 0.05
_KEPT_BY_CHANCE = 0.1  # products, on average; how many are kept decides how each is tested
# Of a statistic that is chance: its own, that of rounding (1/12), and of a client's noise.
_VARIANCE = 1.12
# Signs show a part of what features do together, so a fourth of a standard error is worth telling.
_MATTERS = 0.25


@dataclass(frozen=True, kw_only=True)
class LeftInteraction:
    """Features that act together in what both models miss of an action."""

    action: str
    features: tuple[str, ...]
    strength: float  # standard deviations of chance
    too_high: float  # what the value of giving it to everybody is too high by, in the mixture


@dataclass(frozen=True, eq=False, kw_only=True)
class _Told:
    """What clients told of one action's products."""

    weights: FloatArray  # (n_clients, n_products)
    residuals: FloatArray  # (n_clients, n_products)
    too_high: FloatArray  # (n_products,)  in the mixture
    untold: FloatArray  # (n_products,)  about what squares of clients that told others add up to

    @property
    def strength(self) -> FloatArray:  # (n_products,)
        """|Σz·y| / √max(Σz², Σy²), of which chance has no more than a standard normal."""
        by_weights, by_residuals = (np.square(self.weights), np.square(self.residuals))
        larger = np.maximum(by_weights.sum(axis=0), by_residuals.sum(axis=0)) + self.untold
        both = np.abs((self.weights * self.residuals).sum(axis=0))
        return np.asarray(both / np.sqrt(_VARIANCE * np.maximum(larger, 1.0)))

    @property
    def chance(self) -> FloatArray:  # (n_products,)
        """How likely it is that the model that is more surely wrong is right."""
        from scipy.special import chdtrc  # here, as it is slow to import

        sums = [np.square(one).sum(axis=0) / _VARIANCE for one in (self.weights, self.residuals)]
        return np.asarray(chdtrc(len(self.weights), np.maximum(*sums)), np.float64)


def left_interactions(record: "Record") -> list[LeftInteraction]:
    """All that are no chance and no trifle, the strongest first; none by known propensities."""
    if record.study.knows_propensities:
        return []
    products = feature_products(record.study.n_features)
    told = {
        action: _told(record, place, products)
        for place, action in enumerate(record.study.actions)
        if products and _who_told(record, place)
    }
    if not told:
        return []
    least = _KEPT_BY_CHANCE / (len(products) * record.study.n_actions)
    kept = {action: own.chance < least for action, own in told.items()}
    n_kept = sum(int(own.sum()) for own in kept.values())
    if not n_kept:
        return []
    surely = NormalDist().inv_cdf(1 - _FALSE_ALARM / 2 / n_kept)
    stated = stated_error(record, GLOBAL)
    found = [
        LeftInteraction(
            action=action,
            features=tuple(record.study.features[place] for place in products[k]),
            strength=float(told[action].strength[k]),
            too_high=float(told[action].too_high[k]),
        )
        for action, own in kept.items()
        for k in np.flatnonzero(own & (told[action].strength > surely)).tolist()
    ]
    telling = [one for one in found if abs(one.too_high) > _MATTERS * stated]
    return sorted(telling, key=lambda one: (-one.strength, one.action, one.features))


def _who_told(record: "Record", place: int) -> dict[str, "InteractionsLeft"]:
    """Clients of the mixture that told anything of this action."""
    return {
        name: own
        for name, own in sorted(record.interactions.items())
        if record.mixture.get(name, 0.0) > 0 and own.strongest[place].any()
    }


def _told(record: "Record", action: int, products: tuple[tuple[int, ...], ...]) -> _Told:
    who = _who_told(record, action)
    shares = renormalised(record.mixture, who.keys())
    places = {product: k for k, product in enumerate(products)}
    weights, residuals = np.zeros((2, len(who), len(products)))
    too_high, untold = np.zeros((2, len(products)))
    for row, (name, own) in enumerate(who.items()):
        lines = own.strongest[action]
        lines = lines[lines[:, :2].any(axis=1)]
        told = [places[product_in(line)] for line in lines]
        weights[row, told], residuals[row, told] = lines[:, 3], lines[:, 4]
        too_high[told] += shares[name] * lines[:, 5]
        # Of products that it did not tell of, the two squares are no more than its least together.
        others = np.ones(len(products), bool)
        others[told] = False
        untold[others] += max(1.0, float(np.square(lines[:, 3:5]).sum(axis=1).min()) / 2)
    return _Told(weights=weights, residuals=residuals, too_high=too_high, untold=untold)
