"""What a budget buys: the curve, the chosen point, and alternatives at the same cost."""

from fedopl.report.figures.budget_figure import CURVE_KEYS, Spent, budget_chart
from fedopl.report.parts import Part, Picture, Section, Table, Text
from fedopl.report.words.numbers import Span, alike, decimal, percent
from fedopl.report.words.policy_labels import SO_FAR, OutcomeWords, opened
from fedopl.results.record import Record
from fedopl.results.spending.budget_curve import Alternative, BudgetCurve, BudgetPoint
from fedopl.results.spending.budget_words import budget_in_words, spending_in_words, who_told
from fedopl.study.spending.budget_plan import Budget

_LINES = (
    "whatever price that takes. Straight lines connect the 64 prices that clients were asked about."
)
_STEPS = (
    "by drawing lots between two trees that were found, whose spending lies to either side of it. "
    "The tree of this run is the best of those that spend no more."
)


_CANDIDATES = (
    "by drawing lots between two candidates, whose spending lies to either side of it. "
    "The candidate of this run is the best of those that spend no more."
)


def within_budget(record: Record) -> Section | None:
    """The section, if there is a budget; it claims nothing if models are in doubt."""
    curve, budget = record.curve, record.study.budget
    if curve is None or budget is None:
        return None
    parts: tuple[Part, ...]
    if record.in_doubt:
        parts = (Text(f"Nothing is claimed about what a budget buys: {record.in_doubt}."),)
    else:
        parts = _parts(record, curve, budget)
    return Section(name="budget", title="What the budget buys", parts=parts)


def _parts(record: Record, curve: BudgetCurve, budget: Budget) -> tuple[Part, ...]:
    point, unit = record.within_budget(), OutcomeWords.of(record.study).name
    intro = (
        f"The budget is {budget_in_words(record)}. {spending_in_words(point, 'The policy')}"
        f"{who_told(record)} The gain is over giving everybody '{curve.against}', in {unit} per "
        f"decision, on {record.study.evaluation.rows_valued}. {_price(point)}"
    )
    how = _STEPS if curve.in_steps else _LINES
    return (
        Text(intro),
        _picture(record, curve, point),
        _table(record, curve, point),
        *(_by_client(record, curve) if budget.is_per_client else ()),
        Text(
            "The intervals of the curve are for a budget that is just spent, "
            f"{_CANDIDATES if curve.names else how} For another budget: fedopl budget RUN --most "
            "0.5; that asks no client.",
            quiet=True,
        ),
    )


def _price(point: BudgetPoint) -> str:
    """What a point's price means, in words."""
    if point.candidate is not None:
        return (
            f"'{point.candidate}' is the candidate with the largest value on training rows "
            f"less {decimal(point.price)} for each unit spent."
        )
    return (
        f"It puts a price of {decimal(point.price)} on each unit spent: a person who would "
        "gain less than that per unit gets a cheaper action."
    )


def _picture(record: Record, curve: BudgetCurve, point: BudgetPoint) -> Picture:
    along = [Spent(budget=b, gain=Span.of(gain)) for b, gain in curve.along()]
    chosen = Spent(budget=point.spending.value, gain=Span.of(point.gain))
    lots = curve.lots_to(along[-1].budget)
    budget, unit = record.study.budget, OutcomeWords.of(record.study).name
    assert budget is not None  # noqa: S101
    spent = f"mean cost, {budget.unit(record.study)}" if budget.most else budget.unit(record.study)
    best = along[-1]
    return Picture(
        name="budget",
        drawing=budget_chart(along, chosen, lots, f"{spent}; up: gain in {unit} per decision"),
        label=f"Gain against budget. At {decimal(chosen.budget)}: {chosen.gain}. Without a budget "
        f"{decimal(best.budget)} is spent: {best.gain}.",
        caption="What is gained with each budget, with 95 % intervals.",
        keys=CURVE_KEYS,
    )


def _table(record: Record, curve: BudgetCurve, point: BudgetPoint) -> Table:
    others = curve.alternatives(point.budget)
    past, done = curve.done()
    gains = alike([Span.of(gain) for gain in (point.gain, *(one.gain for one in others), past)])
    costs = (point.spending, *(one.spending for one in others), done)
    spent = alike([Span.of(cost) for cost in costs])
    too_dear = ", more than the budget" if done.value > point.budget else ""
    who = "The learned policy" if point.candidate is None else f"'{point.candidate}'"
    names = [who, *map(_in_words, others), f"{opened(SO_FAR)}{too_dear}"]
    rows = zip(names, gains, spent, strict=True)
    unit = OutcomeWords.of(record.study).name
    return Table(
        caption=f"What decisions spend, and gain in {unit} per decision over giving everybody "
        f"'{curve.against}'",
        headers=("What", "Gain", "95 % interval", "Spends"),
        rows=tuple((name, gain.number, gain.interval, cost.number) for name, gain, cost in rows),
        long_names=True,
    )


def _in_words(other: Alternative) -> str:
    if other.name == "everybody":
        return f"Everybody gets '{other.action}'"
    return f"'{other.action}' for {percent(other.share)}, drawn by lot"


def _by_client(record: Record, curve: BudgetCurve) -> tuple[Part, ...]:
    own = [record.within_budget(name) for name in sorted(curve.clients)]
    gains = alike([Span.of(point.gain) for point in own])
    spent = alike([Span.of(point.spending) for point in own])
    rows = zip(own, gains, spent, strict=True)
    text = (
        "The budget is to hold at each client. The policy of this run has the highest price that "
        "any of them needs; with its own price, each client would have the results below (fedopl "
        "budget RUN --client NAME --save FILE)."
    )
    table = Table(
        caption="Each client at its own price",
        headers=("Client", "Price", "Gain", "95 % interval", "Spends"),
        rows=tuple(
            (one.client, decimal(one.price), gain.number, gain.interval, cost.number)
            for one, gain, cost in rows
        ),
    )
    return Text(text), table
