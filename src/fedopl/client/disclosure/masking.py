"""Masking: values that few rows of a cell have are hidden before the cell is summed."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.aimed_terms import MovedNumbers, moved_numbers, rare_products
from fedopl.client.disclosure.left_over import LeftOver, left_over
from fedopl.client.disclosure.rare_values import (
    ContextPart,
    ContextParts,
    RareValues,
    common_values,
    mask_rare,
    rare_values,
)
from fedopl.client.disk.passes import mapped
from fedopl.policies.terms import Terms


@dataclass(frozen=True, eq=False, kw_only=True)
class Mask:
    """What to mask in rows, by the cell that each row is in."""

    terms: Terms | None = None  # the terms in contexts, if these are more than features
    moved: tuple[MovedNumbers, ...] = ()
    rare: tuple[RareValues, ...] = ()
    left: tuple[LeftOver, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.moved or self.rare or self.left)

    def __call__(self, contexts: FloatArray, cells: IntArray) -> FloatArray:  # shaped as contexts
        """The contexts with rare values masked; the same array if there are none."""
        masked = mask_rare(self.rare, self._moved(contexts, cells), cells)
        for one in self.left:
            masked = one(masked, cells)
        return masked

    def _moved(self, contexts: FloatArray, cells: IntArray) -> FloatArray:  # shaped as contexts
        if self.terms is None or not self.moved:
            return contexts
        features = np.array(contexts[:, : len(self.terms.features)])
        for one in self.moved:
            features[:, one.feature] = one(features[:, one.feature], cells)
        return self.terms.of(features)


NOTHING = Mask()


def find_mask(parts: ContextParts, n_cells: int, minimum: int, terms: Terms | None = None) -> Mask:
    """All that must be masked in these rows; nothing if a cell may have a single row."""
    if minimum < 2:
        return NOTHING
    moved = moved_numbers(parts, terms.knots, n_cells, minimum) if terms else ()
    mask = Mask(terms=terms, moved=moved)
    common = common_values(_masked(parts, mask))
    rare = rare_values(_masked(parts, mask), common, n_cells, minimum)
    if terms:
        rare += rare_products(_masked(parts, mask), terms, n_cells, minimum)
    mask = Mask(terms=terms, moved=moved, rare=rare)
    flags = {feature: own.values for feature, own in common.items() if own.are_all}
    left = left_over(_masked(parts, mask), flags, n_cells, minimum)
    return Mask(terms=terms, moved=moved, rare=rare, left=left)


def _masked(parts: ContextParts, mask: Mask) -> ContextParts:
    """The same parts with so much of them masked."""
    return lambda: mapped(partial(_masked_part, mask), parts())


def _masked_part(mask: Mask, part: ContextPart) -> ContextPart:
    contexts, cells = part
    return mask(contexts, cells), cells
