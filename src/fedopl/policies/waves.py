"""Waves: cosines of several numbers at once, drawn at random, used as terms in sums.

Any smooth function is nearly a sum of many waves (Rahimi and Recht 2007). So interactions of three
features, which hinges and products of two cannot represent, are learned from sums as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for
from fedopl.policies.basis import Basis
from fedopl.policies.export.target import Target, Term

NUMBERS_OF_A_WAVE = 5  # numbers of one wave; of more, each wave has some
WAVE_DIGITS = 6  # of frequencies and phases, so that they are the same on every processor


@dataclass(frozen=True, eq=False, kw_only=True)
class Waves:
    """cos(ωᵀz + b), z being numbers with knots: clamped, and from the middle knot in its unit."""

    sources: tuple[tuple[int, ...], ...] = ()  # the places of the numbers of each wave
    frequencies: tuple[tuple[float, ...], ...] = ()
    phases: tuple[float, ...] = ()

    @classmethod
    def of(cls, basis: Basis, place: dict[str, int]) -> Self:
        """The waves of a basis, which its seed, its width and its numbers determine."""
        numbers = [place[name] for name in basis.knots]
        n_together = min(NUMBERS_OF_A_WAVE, len(numbers))
        rng = generator_for(basis.wave_seed, purpose="waves")
        sources, frequencies, phases = [], [], []
        for _ in range(basis.waves):
            sources.append(tuple(sorted(rng.permutation(numbers)[:n_together].tolist())))
            drawn = rng.standard_normal(n_together) / basis.wave_width
            frequencies.append(tuple(drawn.round(WAVE_DIGITS).tolist()))
            phases.append(round(float(rng.uniform(0, 2 * np.pi)), WAVE_DIGITS))
        return cls(sources=tuple(sources), frequencies=tuple(frequencies), phases=tuple(phases))

    def __len__(self) -> int:
        return len(self.phases)

    def names(self, features: Sequence[str]) -> list[str]:
        """The name of each wave: `wave 3 of age, dose and weight`."""
        return [
            f"wave {number} of {_listed([features[place] for place in own])}"
            for number, own in enumerate(self.sources, start=1)
        ]

    def write(self, scaled: FloatArray, onto: FloatArray) -> None:
        """Write the waves of these numbers, one column for each wave."""
        parts = zip(self.sources, self.frequencies, self.phases, strict=True)
        for position, (own, frequencies, phase) in enumerate(parts):
            angles = np.full(len(scaled), phase)
            # One number after another: the result of a matrix product depends on the processor.
            for place, frequency in zip(own, frequencies, strict=True):
                angles += frequency * scaled[:, place]
            np.cos(angles, out=onto[:, position])

    def written_in(self, target: Target[Term], scaled: dict[int, Term]) -> list[Term]:
        """The waves in another language."""
        return [
            target.wave([(w, scaled[place]) for place, w in zip(own, weights, strict=True)], phase)
            for own, weights, phase in zip(self.sources, self.frequencies, self.phases, strict=True)
        ]


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
