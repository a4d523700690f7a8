"""The paper's claims, judged: paired differences over many draws, and a verdict on each."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.reproduction.experiment_cells import Cell, Pipeline
from fedopl.reproduction.run_cells import Table
from fedopl.simulation.paper import Kind, Reading

Verdict = Literal["holds", "fails", "undecided"]
SMALL_N, LARGE_N = 1000, 10_000
HOMOGENEOUS_N = 1000
# Sizes for the rate: far enough apart that a slope can be seen.
RATE_SIZES = (SMALL_N, 3000, LARGE_N)
Z95 = 1.959964


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One claim, what it comes down to, and what was found."""

    claim: str
    text: str
    quantity: str
    mean: float
    standard_error: float
    n_draws: int
    verdict: Verdict

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean."""
        reach = Z95 * self.standard_error
        return self.mean - reach, self.mean + reach


def cells_for_claims(reading: Reading, pipeline: Pipeline, n_draws: int) -> list[Cell]:
    """What has to be computed to judge every claim."""
    sizes: list[tuple[Kind, int]] = [("homogeneous", HOMOGENEOUS_N)]
    sizes += [("heterogeneous", n) for n in RATE_SIZES]
    return [
        Cell.of(kind, reading, pipeline, n, seed) for kind, n in sizes for seed in range(n_draws)
    ]


def judge(table: Table, reading: Reading, pipeline: Pipeline) -> list[Judged]:
    """Every claim, against the true optimum."""

    def regret(kind: Kind, n: int, mixture: str, policy: str, where: str) -> FloatArray:
        """By draw, in the order of seeds: differences are paired."""
        key = (mixture, policy, where, "optimum")
        found = []
        for cell in sorted(table):
            if cell == Cell.of(kind, reading, pipeline, n, cell.seed):
                found += [
                    r.regret
                    for r in table[cell]
                    if (r.mixture, r.policy, r.where, r.against) == key
                ]
        return np.array(found)

    def het(n: int, mixture: str, policy: str, where: str) -> FloatArray:
        return regret("heterogeneous", n, mixture, policy, where)

    one, two = "client 1", "client 2"
    hom_global = regret("homogeneous", HOMOGENEOUS_N, "empirical", "global", "global")
    hom_local = regret("homogeneous", HOMOGENEOUS_N, "", "local", one)
    global_1 = {n: het(n, "empirical", "global", one) for n in (SMALL_N, LARGE_N)}
    local_1 = {n: het(n, "", "local", one) for n in (SMALL_N, LARGE_N)}
    hier_1 = {n: het(n, "", "hieropo", one) for n in (SMALL_N, LARGE_N)}
    skewed_1 = het(LARGE_N, "skewed", "global", one)
    global_2, skewed_2 = (het(LARGE_N, m, "global", two) for m in ("empirical", "skewed"))
    rate = _slopes([het(n, "empirical", "global", "global") for n in RATE_SIZES])
    return [
        _judged(
            "a",
            "Homogeneous clients: global and local regret coincide",
            f"R_λ(π̂_λ) − R_1(π̂_1), n = {HOMOGENEOUS_N:,}",
            hom_global - hom_local,
            _within(0.1 * float(hom_local.mean()) + 0.005),
        ),
        _judged(
            "b1",
            "λ = n̄: client 1's own policy beats the global one at a large enough n",
            f"R_1(π̂_λ) − R_1(π̂_1), n = {LARGE_N:,}",
            global_1[LARGE_N] - local_1[LARGE_N],
            _above_zero,
        ),
        _judged(
            "b2",
            "HierOPO beats the local policy at small n",
            f"R_1(π̂_1) − R_1(π̂_H), n = {SMALL_N:,}",
            local_1[SMALL_N] - hier_1[SMALL_N],
            _above_zero,
        ),
        _judged(
            "b3",
            "… and no longer at large n",
            f"R_1(π̂_H) − R_1(π̂_1), n = {LARGE_N:,}",
            hier_1[LARGE_N] - local_1[LARGE_N],
            _above_zero,
        ),
        _judged(
            "c1",
            "Skewing the mixture toward client 1 lowers its regret",
            f"R_1(π̂ at n̄) − R_1(π̂ skewed), n = {LARGE_N:,}",
            global_1[LARGE_N] - skewed_1,
            _above_zero,
        ),
        _judged(
            "c2",
            "Under the skewed mixture client 1's own policy does not beat the global one",
            f"R_1(π̂_1) − R_1(π̂ skewed), n = {LARGE_N:,}",
            local_1[LARGE_N] - skewed_1,
            _above_zero,
        ),
        _judged(
            "d1",
            "λ = n̄: client 2's local regret nearly matches the global regret",
            f"R_2(π̂_λ) − R_λ(π̂_λ), n = {LARGE_N:,}",
            global_2 - het(LARGE_N, "empirical", "global", "global"),
            _within(0.25 * float(global_2.mean()) + 0.005),
        ),
        _judged(
            "d2",
            "The skew makes client 2 worse off",
            f"R_2(π̂ skewed) − R_2(π̂ at n̄), n = {LARGE_N:,}",
            skewed_2 - global_2,
            _above_zero,
        ),
        _judged(
            "pooled",
            "Learning together loses nothing against pooling all rows",
            f"R_λ(π̂_λ) − R_λ(π̂ pooled), n = {LARGE_N:,}",
            het(LARGE_N, "empirical", "global", "global")
            - het(LARGE_N, "empirical", "pooled", "global"),
            _within(0.1 * float(global_2.mean()) + 0.005),
        ),
        _judged(
            "rate",
            "Global regret falls at least as fast as n^(−1/2)",
            f"slope of log R_λ against log n, n = {RATE_SIZES[0]:,} to {RATE_SIZES[-1]:,}",
            rate,
            lambda low, high: _above_zero(-0.5 - high, -0.5 - low),
        ),
    ]


def _slopes(regrets: list[FloatArray]) -> FloatArray:
    """Each draw's least-squares slope of log regret against log n."""
    sizes = np.log(RATE_SIZES)
    heights = np.log(np.maximum(np.array(regrets), 1e-9))
    centred = sizes - sizes.mean()
    slopes: FloatArray = centred @ heights / (centred @ centred)
    return slopes


def _judged(
    claim: str,
    text: str,
    quantity: str,
    by_draw: FloatArray,
    verdict: Callable[[float, float], Verdict],
) -> Judged:
    mean = float(by_draw.mean())
    error = float(by_draw.std(ddof=1) / math.sqrt(len(by_draw)))
    return Judged(
        claim=claim,
        text=text,
        quantity=quantity,
        mean=mean,
        standard_error=error,
        n_draws=len(by_draw),
        verdict=verdict(mean - Z95 * error, mean + Z95 * error),
    )


def _above_zero(low: float, high: float) -> Verdict:
    return "holds" if low > 0 else "fails" if high < 0 else "undecided"


def _within(margin: float) -> Callable[[float, float], Verdict]:
    """Equivalence: the whole interval inside the margin, or the whole of it outside."""

    def verdict(low: float, high: float) -> Verdict:
        if -margin < low and high < margin:
            return "holds"
        return "fails" if low > margin or high < -margin else "undecided"

    return verdict


def as_markdown(judged: dict[tuple[Reading, Pipeline], list[Judged]]) -> str:
    """One table for each reading and pipeline."""
    parts = []
    for (reading, pipeline), claims in judged.items():
        lines = [
            f"### Reading “{reading}”, {pipeline} pipeline",
            "",
            "| | claim | quantity | mean ± standard error | draws | verdict |",
            "|---|---|---|---:|---:|---|",
        ]
        lines += [
            f"| {j.claim} | {j.text} | {j.quantity} | {j.mean:.4f} ± {j.standard_error:.4f} | "
            f"{j.n_draws} | **{j.verdict}** |"
            for j in claims
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def as_json(judged: dict[tuple[Reading, Pipeline], list[Judged]]) -> str:
    """The same for machines."""
    content = [
        {"reading": reading, "pipeline": pipeline, **asdict(claim)}
        for (reading, pipeline), claims in judged.items()
        for claim in claims
    ]
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
