"""The paper's claims as a table, each judged by paired differences of regrets over many draws."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.reproduction.experiment_cells import Cell, Pipeline, RegretTable
from fedopl.simulation.paper import Kind, Reading

Verdict = Literal["holds", "fails", "undecided"]
SMALL_N, LARGE_N = 300, 10_000
HOMOGENEOUS_N = 1000
# Sizes for the rate, far enough apart to show a slope.
RATE_SIZES = (1000, 3000, LARGE_N)
Z95 = 1.959964
ONE, TWO = "client 1", "client 2"


@dataclass(frozen=True, eq=False)
class PairedRegrets:
    """True regrets under one reading and pipeline. All are in the order of seeds, hence paired."""

    table: RegretTable
    reading: Reading
    pipeline: Pipeline

    def of(self, kind: Kind, n: int, mixture: str, policy: str, where: str) -> FloatArray:
        """Regrets (n_draws,) against the optimum at one size."""
        key = (mixture, policy, where, "optimum")
        return np.array(
            [
                found.regret
                for cell in sorted(self.table)
                if cell == Cell.of(kind, self.reading, self.pipeline, n, cell.seed)
                for found in self.table[cell]
                if (found.mixture, found.policy, found.where, found.against) == key
            ]
        )

    def together(self, n: int, where: str, mixture: str = "empirical") -> FloatArray:
        """Regrets of the policy that heterogeneous clients learn together."""
        return self.of("heterogeneous", n, mixture, "global", where)

    def alone(self, n: int, policy: str = "local") -> FloatArray:
        """Regrets of client 1's own policy, or HierOPO's for it, among heterogeneous clients."""
        return self.of("heterogeneous", n, "", policy, ONE)


# A test turns the 95 % interval of a claim's quantity into a verdict.
Test = Callable[[float, float, PairedRegrets], Verdict]


def _positive(low: float, high: float, _: PairedRegrets) -> Verdict:
    return "holds" if low > 0 else "fails" if high < 0 else "undecided"


def _below(threshold: float) -> Test:
    return lambda low, high, regrets: _positive(threshold - high, threshold - low, regrets)


def _equivalent(share: float, scale: Callable[[PairedRegrets], FloatArray]) -> Test:
    """A test of equivalence to zero.

    A claim holds if its whole interval is within this share of a mean regret. It fails if the whole
    interval is outside.
    """

    def test(low: float, high: float, regrets: PairedRegrets) -> Verdict:
        margin = share * float(scale(regrets).mean()) + 0.005
        if -margin < low and high < margin:
            return "holds"
        return "fails" if low > margin or high < -margin else "undecided"

    return test


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper, the quantity that decides it, and the test."""

    name: str
    text: str
    quantity: str
    by_draw: Callable[[PairedRegrets], FloatArray]  # (n_draws,)
    test: Test = _positive
    # The same quantity at other sizes, if the claim is about small sizes and may change.
    by_size: dict[int, Callable[[PairedRegrets], FloatArray]] = field(default_factory=dict)


def _homogeneous_local(regrets: PairedRegrets) -> FloatArray:
    return regrets.of("homogeneous", HOMOGENEOUS_N, "", "local", ONE)


def _hieropo_ahead(n: int) -> Callable[[PairedRegrets], FloatArray]:
    """How much more client 1's own policy loses than HierOPO's."""
    return lambda regrets: regrets.alone(n) - regrets.alone(n, "hieropo")


def _global_at_two(regrets: PairedRegrets) -> FloatArray:
    return regrets.together(LARGE_N, TWO)


def _slopes(regrets: PairedRegrets) -> FloatArray:
    """Each draw's least-squares slope of log regret against log n."""
    sizes = np.log(RATE_SIZES)
    found = [regrets.together(n, "global") for n in RATE_SIZES]
    heights = np.log(np.maximum(np.array(found), 1e-9))
    centred = sizes - sizes.mean()
    slopes: FloatArray = centred @ heights / (centred @ centred)
    return slopes


CLAIMS = (
    Claim(
        name="a",
        text="Homogeneous clients: global and local regret coincide",
        quantity=f"R_λ(π̂_λ) − R_1(π̂_1), n = {HOMOGENEOUS_N:,}",
        by_draw=lambda r: (
            r.of("homogeneous", HOMOGENEOUS_N, "empirical", "global", "global")
            - _homogeneous_local(r)
        ),
        test=_equivalent(0.1, _homogeneous_local),
    ),
    Claim(
        name="b1",
        text="λ = n̄: client 1's own policy beats the global one at a large enough n",
        quantity=f"R_1(π̂_λ) − R_1(π̂_1), n = {LARGE_N:,}",
        by_draw=lambda r: r.together(LARGE_N, ONE) - r.alone(LARGE_N),
    ),
    Claim(
        name="b2",
        text="HierOPO beats the local policy at small n",
        quantity=f"R_1(π̂_1) − R_1(π̂_H), n = {SMALL_N:,}",
        by_draw=_hieropo_ahead(SMALL_N),
        by_size={n: _hieropo_ahead(n) for n in RATE_SIZES},
    ),
    Claim(
        name="b3",
        text="… and no longer at large n",
        quantity=f"R_1(π̂_H) − R_1(π̂_1), n = {LARGE_N:,}",
        by_draw=lambda r: r.alone(LARGE_N, "hieropo") - r.alone(LARGE_N),
    ),
    Claim(
        name="c1",
        text="Skewing the mixture toward client 1 lowers its regret",
        quantity=f"R_1(π̂ at n̄) − R_1(π̂ skewed), n = {LARGE_N:,}",
        by_draw=lambda r: r.together(LARGE_N, ONE) - r.together(LARGE_N, ONE, "skewed"),
    ),
    Claim(
        name="c2",
        text="Under the skewed mixture client 1's own policy does not beat the global one",
        quantity=f"R_1(π̂_1) − R_1(π̂ skewed), n = {LARGE_N:,}",
        by_draw=lambda r: r.alone(LARGE_N) - r.together(LARGE_N, ONE, "skewed"),
    ),
    Claim(
        name="d1",
        text="λ = n̄: client 2's local regret nearly matches the global regret",
        quantity=f"R_2(π̂_λ) − R_λ(π̂_λ), n = {LARGE_N:,}",
        by_draw=lambda r: _global_at_two(r) - r.together(LARGE_N, "global"),
        test=_equivalent(0.25, _global_at_two),
    ),
    Claim(
        name="d2",
        text="The skew makes client 2 worse off",
        quantity=f"R_2(π̂ skewed) − R_2(π̂ at n̄), n = {LARGE_N:,}",
        by_draw=lambda r: r.together(LARGE_N, TWO, "skewed") - _global_at_two(r),
    ),
    Claim(
        name="pooled",
        text="Learning together loses nothing against pooling all rows",
        quantity=f"R_λ(π̂_λ) − R_λ(π̂ pooled), n = {LARGE_N:,}",
        by_draw=lambda r: (
            r.together(LARGE_N, "global")
            - r.of("heterogeneous", LARGE_N, "empirical", "pooled", "global")
        ),
        test=_equivalent(0.1, _global_at_two),
    ),
    Claim(
        name="rate",
        text="Global regret falls at least as fast as n^(−1/2)",
        quantity=f"slope of log R_λ against log n, n = {RATE_SIZES[0]:,} to {RATE_SIZES[-1]:,}",
        by_draw=_slopes,
        test=_below(-0.5),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One claim, its quantity, and the result."""

    claim: str
    text: str
    quantity: str
    mean: float
    standard_error: float
    n_draws: int
    verdict: Verdict
    turns: str = ""  # the larger sizes at which the claim does not hold, if examined


def cells_for_claims(reading: Reading, pipeline: Pipeline, n_draws: int) -> list[Cell]:
    """The cells that are needed to judge every claim."""
    sizes: list[tuple[Kind, int]] = [("homogeneous", HOMOGENEOUS_N)]
    sizes += [("heterogeneous", n) for n in (SMALL_N, *RATE_SIZES)]
    return [
        Cell.of(kind, reading, pipeline, n, seed) for kind, n in sizes for seed in range(n_draws)
    ]


def judge(table: RegretTable, reading: Reading, pipeline: Pipeline) -> list[Judged]:
    """Judge every claim, against the true optimum."""
    regrets = PairedRegrets(table, reading, pipeline)
    return [_judged(claim, regrets) for claim in CLAIMS]


def _judged(claim: Claim, regrets: PairedRegrets) -> Judged:
    by_draw = claim.by_draw(regrets)
    mean, error = _mean(by_draw)
    return Judged(
        claim=claim.name,
        text=claim.text,
        quantity=claim.quantity,
        mean=mean,
        standard_error=error,
        n_draws=len(by_draw),
        verdict=_verdict(claim, by_draw, regrets),
        turns=_turns(claim, regrets),
    )


def _mean(by_draw: FloatArray) -> tuple[float, float]:
    """The mean over draws and its standard error."""
    return float(by_draw.mean()), float(by_draw.std(ddof=1) / math.sqrt(len(by_draw)))


def _verdict(claim: Claim, by_draw: FloatArray, regrets: PairedRegrets) -> Verdict:
    mean, error = _mean(by_draw)
    return claim.test(mean - Z95 * error, mean + Z95 * error, regrets)


def _turns(claim: Claim, regrets: PairedRegrets) -> str:
    """The larger sizes at which the claim does not hold, with the means there; empty if none."""
    found = []
    for n, by_draw_at in sorted(claim.by_size.items()):
        by_draw = by_draw_at(regrets)
        verdict = _verdict(claim, by_draw, regrets)
        if verdict != "holds":
            mean, error = _mean(by_draw)
            found.append((n, f"n = {n:,} {verdict}: {mean:.4f} ± {error:.4f}"))
    if not found:
        return ""
    return f"turns from n = {found[0][0]:,} on ({'; '.join(text for _, text in found)})"


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
            f"| {j.claim} | {j.text} | {j.quantity}{'; ' * bool(j.turns)}{j.turns} | "
            f"{j.mean:.4f} ± {j.standard_error:.4f} | "
            f"{j.n_draws} | **{j.verdict}** |"
            for j in claims
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def as_json(judged: dict[tuple[Reading, Pipeline], list[Judged]]) -> str:
    """The judged claims as JSON."""
    content = [
        {"reading": reading, "pipeline": pipeline, **asdict(claim)}
        for (reading, pipeline), claims in judged.items()
        for claim in claims
    ]
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
