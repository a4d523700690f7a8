"""Limits that policies are to keep: guardrails, and a budget."""

from matplotlib.figure import Figure

from fedopl.base.labels import GLOBAL
from fedopl.report.explain.in_doubt import folded_if_doubted
from fedopl.report.figures.colours import ACCENT, INK, LINE, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, set_short_ticks
from fedopl.report.figures.line_charts import mark_heights
from fedopl.report.parts import Key, Part, Picture, Section, Table, Text
from fedopl.report.words.numbers import Span, alike, decimal, percent
from fedopl.report.words.policy_labels import SO_FAR, OutcomeWords, label, opened
from fedopl.results.record import Record
from fedopl.results.spending.budget_curve import Alternative, BudgetCurve, BudgetPoint
from fedopl.results.spending.budget_words import budget_in_words, spending_in_words, who_told
from fedopl.results.value_tables import LOCAL, GuardrailRow
from fedopl.study.guardrail import Guardrail, guarded_columns
from fedopl.study.spending import Budget

_MOST_COLUMNS = 4  # of all together and of clients; outcomes.csv has all
_VERDICTS = {
    "kept": "kept: all of it lies within the limit",
    "broken": "broken: all of it lies beyond the limit",
    "not shown": "not shown: the limit lies between the bounds",
}


def guardrails_kept(record: Record) -> Section | None:
    """The section, or None if the study has no guardrails."""
    agreed = record.study.guardrails
    if not agreed:
        return None
    if not record.guardrails:
        unknown = Text("No values were reported, so nothing is known about guardrails.")
        return Section(name="guardrails", title="Guardrails", parts=(unknown,))
    first = record.beyond_guardrails or (
        f"{opened(label(record.study, record.chosen))} is shown to keep every guardrail."
    )
    tables = [_judged(record, name, guardrail) for name, guardrail in agreed.items()]
    tables += [_outcomes(record, column) for column in guarded_columns(record.study)]
    how = (
        "A guardrail is kept where all of the interval of a policy's change lies within its "
        "limit, and broken where all of it lies beyond. All bounds of a guardrail hold together, "
        "over policies and guardrails, with its confidence (Bonferroni). Only a policy that is "
        "shown to keep all guardrails is recommended. Every client valued the same policies on "
        f"the same {record.study.evaluation.valued('rows')}, with its own models of the outcome."
    )
    parts = (Text(first), *folded_if_doubted(record, (Text(how), *tables)))
    return Section(name="guardrails", title="Guardrails", parts=parts)


def _judged(record: Record, name: str, guardrail: Guardrail) -> Table:
    return Table(
        caption=f"{name}: {guardrail.words}, with {percent(guardrail.confidence)} confidence",
        headers=("Policy", f"Change of {guardrail.column}", "Bounds", "In words"),
        rows=tuple(_cells(record, row) for row in record.guardrails.rows if row.guardrail == name),
        text_columns=(3,),
    )


def _cells(record: Record, row: GuardrailRow) -> tuple[str, ...]:
    what = opened(label(record.study, row.policy))
    if row.estimate is None:
        return what, "–", "–", "not shown: not every client could value it"
    span = Span.of(row.estimate, row.level)
    return what, span.number, span.interval, _VERDICTS[row.verdict]


def _outcomes(record: Record, column: str) -> Table:
    found = {
        (row.policy, row.client): Span.of(row.estimate, row.level)
        for row in record.outcomes.rows
        if row.outcome == column
    }
    clients = list(dict.fromkeys(client for _, client in found))
    clients = clients if len(clients) <= _MOST_COLUMNS else clients[:1]
    policies = [name for name in dict.fromkeys(name for name, _ in found) if name != LOCAL]
    return Table(
        caption=f"Expected {column} per decision, as logged, with 95 % intervals",
        headers=("Policy", *("All together" if c == GLOBAL else c for c in clients)),
        rows=tuple(
            (
                opened(label(record.study, policy)),
                *(f"{found[policy, c].number} ({found[policy, c].interval})" for c in clients),
            )
            for policy in policies
        ),
    )


# What the intervals of a curve are for: policies between prices, or lots between two of them.
_LINES = (
    "whatever price that takes. Straight lines connect the 64 prices that clients were asked about"
)
_LOTS = (
    "by drawing lots between two {0}s{1}, whose spending lies to either side of it. The {0} of "
    "this run is the best of those that spend no more"
)
# In inches: the figure's height, and the room around the curve.
_HEIGHT, _FOOT, _HEAD, _LEFT, _RIGHT = 2.8, 0.62, 0.12, 0.62, 0.2
_KEYS = (
    Key(colour="accent", text="the learned policy, with 95 % intervals", mark="■"),
    Key(colour="ink", text="what was chosen", mark="●"),
    Key(colour="quiet", text="the best action by lot", mark="□"),
)


def within_budget(record: Record) -> Section | None:
    """The section, if there is a budget; it claims nothing if models are in doubt."""
    curve, budget = record.curve, record.study.budget
    if curve is None or budget is None:
        return None
    if record.in_doubt:
        doubt = Text(f"Nothing is claimed about what a budget buys: {record.in_doubt}.")
        return Section(name="budget", title="What the budget buys", parts=(doubt,))
    parts = _parts(record, curve, budget)
    return Section(name="budget", title="What the budget buys", parts=parts)


def _parts(record: Record, curve: BudgetCurve, budget: Budget) -> tuple[Part, ...]:
    point, unit = record.within_budget(), OutcomeWords.of(record.study).name
    intro = (
        f"The budget is {budget_in_words(record)}. {spending_in_words(point, 'The policy')}"
        f"{who_told(record)} The gain is over giving everybody '{curve.against}', in {unit} per "
        f"decision, on {record.study.evaluation.rows_valued}. {_price(point)}"
    )
    step = ("candidate", "") if curve.names else ("tree", " that were found")
    how = _LOTS.format(*step) if curve.in_steps else _LINES
    return (
        Text(intro),
        _picture(record, curve, point),
        _table(record, curve, point),
        *(_by_client(record, curve) if budget.is_per_client else ()),
        Text(
            "The intervals of the curve are for a budget that is just spent, "
            f"{how}. For another budget: fedopl budget RUN --most 0.5; that asks no client.",
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
    along = [(budget, Span.of(gain)) for budget, gain in curve.along()]
    chosen, gained = point.spending.value, Span.of(point.gain)
    budget, unit = record.study.budget, OutcomeWords.of(record.study).name
    assert budget is not None  # noqa: S101
    spent = f"mean cost, {budget.unit(record.study)}" if budget.most else budget.unit(record.study)
    most, best = along[-1]
    lots, axis = curve.lots_to(most), f"{spent}; up: gain in {unit} per decision"

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, _LEFT, _FOOT, WIDTH - _LEFT - _RIGHT, _HEIGHT - _FOOT - _HEAD)
        across, gains = zip(*along, strict=True)
        low, high = [gain.low for gain in gains], [gain.high for gain in gains]
        axes.fill_between(across, low, high, color=ACCENT, alpha=0.2, linewidth=0)
        axes.plot(across, [gain.value for gain in gains], "-", color=ACCENT, linewidth=1.6)
        if lots:
            axes.plot(*zip(*lots, strict=True), "--", color=QUIET, linewidth=1.2)
            axes.plot(*lots[-1], "s", color=QUIET, mfc="none", markersize=5)
        axes.axvline(chosen, color=LINE, linewidth=1)
        axes.plot(chosen, gained.value, "o", color=INK, markersize=6)
        axes.axhline(0, color=LINE, linewidth=0.8)
        axes.set_xlim(left=0)
        set_short_ticks(axes.xaxis, 5)
        mark_heights(axes)
        figure.text(1 - _RIGHT / WIDTH, 0.09 / _HEIGHT, axis, ha="right", color=QUIET)

    return Picture(
        name="budget",
        drawing=Drawing(name="budget", height=_HEIGHT, draw=draw),
        label=f"Gain against budget. At {decimal(chosen)}: {gained}. Without a budget "
        f"{decimal(most)} is spent: {best}.",
        caption="What is gained with each budget, with 95 % intervals.",
        keys=_KEYS,
    )


def _table(record: Record, curve: BudgetCurve, point: BudgetPoint) -> Table:
    others = curve.alternatives(point.budget)
    past, done = curve.done()
    gains = alike([Span.of(gain) for gain in (point.gain, *(one.gain for one in others), past)])
    costs = (point.spending, *(one.spending for one in others), done)
    spent = alike([Span.of(cost) for cost in costs])
    too_dear = ", more than the budget" if done.value > point.budget else ""
    past_words = f"{opened(SO_FAR)}{too_dear}"
    names = [point.named("The learned policy"), *map(_in_words, others), past_words]
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
    if other.share is None:
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
