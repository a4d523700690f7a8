"""The policy at a site without outcomes: its value there, and the evidence behind that value."""

from collections.abc import Iterator, Mapping

from fedopl.report.explain.in_doubt import folded_if_doubted
from fedopl.report.parts import Caution, Heading, Part, Points, Section, Table, Text
from fedopl.report.words.numbers import Span, alike, count, decimal, listed, percent, plural
from fedopl.report.words.policy_labels import OutcomeWords, label, opened, verdict
from fedopl.results.record import Record
from fedopl.results.target_value import GOOD_PART, LEAST_SEEN, SOME, AtTarget, TargetSource
from fedopl.results.value_tables import arm_name

_TOLD = (
    "The target reported what its contexts are like: the means of all features, and of their "
    "squares. "
)
_BY_EACH = "Each source then weighted its own {rows} so that they have the same means. "
_ROBUST = (
    "A value is what outcome models predict for the target's contexts, plus a "
    "correction from the scores of these rows (doubly robust). It is right if either the "
    "models or the weights are right. It is assumed, and cannot be checked, that people with "
    "the same features fare alike at the target and at the sources."
)
_BY_FOLD = (
    "Every row of a source is valued by the policy, and corrects the models, that were learned "
    "without its fold, and the models' part is the mean over folds. So the value is that of the "
    "way of learning. "
)
_LEARNED = (
    "The policy was learned from the rows of all sources, by the mixture, without these "
    "weights. The weights are for values only."
)
_NOT_COMPARED = (
    "Only all sources together look like the target, so they cannot be compared with each other "
    "at the same contexts{}."
)
_SIGNIFICANT = {
    "better": "more is gained there",
    "worse": "it does worse there",
    "unclear": "which of the two is better there is not shown",
    "same": "both decide alike there",
}


def at_target(record: Record) -> Section | None:
    """The section, or None if the study has no target."""
    found = record.target
    if found is None:
        return None
    parts: tuple[Part, ...] = (Text(_verdict(record, found)),)
    if found.values:
        parts += folded_if_doubted(record, (_values(record, found), Text(_gain(record, found))))
    parts += (Text(_how(record, found)), Text(_LEARNED))
    if found.sources:
        parts += (
            Heading("What each source says"),
            _sources(record, found),
            Text(_screen(record, found)),
        )
    if found.regions:
        parts += (Heading("Whether sources have seen such people"), *_regions(record, found))
    if found.mixture:
        parts += (Heading("The mixture that is like the target"), *_mixture(found))
    return Section(name="target", title=f"What it is worth at {found.client}", parts=parts)


def target_cautions(record: Record) -> Iterator[Caution]:
    """Cautions about the target, to read before acting there."""
    found = record.target
    if found is None:
        return
    rows = record.study.evaluation.valued("rows")
    if found.unseen:
        where = [f"{one.words} ({percent(one.share)} of its rows)" for one in found.unseen]
        yield Caution(
            f"{opened(found.client)} has people whom hardly any source has seen",
            f"Sources have fewer than {LEAST_SEEN} {rows} {listed(where)}.",
            "Nothing is claimed about what the policy is worth there, and what it decides "
            "for them is a guess. Let a client join that has seen such people.",
        )
    elif found.thin and not found.why_not:
        where = [f"{one.words} ({percent(one.share)} of its rows)" for one in found.thin]
        yield Caution(
            f"Some people at {found.client} are like hardly anybody at the sources",
            f"Sources have fewer than {LEAST_SEEN} {rows} {listed(where)}.",
            "For them the results rest on models and on a few rows of large weight. The "
            "value as a whole allows for that. What the policy decides for them is little "
            "better than a guess.",
        )
    elif found.why_not:
        yield Caution(
            f"Nothing is claimed about {found.client}",
            f"{opened(found.why_not)}.",
            _advice(record, found),
        )
    odd = [one.client for one in found.left_out if one.is_left_out]
    if odd and not found.why_not:
        yield Caution(
            "A source's outcomes do not transport",
            f"At the same contexts outcomes at {listed(odd)} differ from those of the other "
            "sources by more than chance, so it is left out of the value at the target.",
            "The policy was still learned with its rows, too. Find out why it differs, and "
            "whether the target is more like it than like the others.",
        )


def _how(record: Record, found: AtTarget) -> str:
    """What weights were found, by whom, and what is done with them."""
    evaluation = record.study.evaluation
    rows = evaluation.valued("rows")
    said = _BY_FOLD * evaluation.is_cross_fitted + _ROBUST
    if found.balance == "each":
        return _TOLD + _BY_EACH.format(rows=rows) + said
    jointly = (
        f"Weights were then found for the {rows} of all sources together, in "
        f"{plural(found.n_steps, 'step')}: each source reported sums of its features under the "
        "weights so far. "
    )
    if found.gap is not None and found.has_joint_weights:
        jointly += (
            f"By these sums, no mean is further than {decimal(found.gap, 3)} standard "
            "deviations from the target's. "
        )
    return _TOLD + jointly + said


def _advice(record: Record, found: AtTarget) -> str:
    if not found.n_rows:
        return "Let the target see what it would release (fedopl preview), and run the study again."
    plan = record.study.target
    if plan and plan.balance == "each" and found.sources and found.effective_rows < plan.least_rows:
        return (
            "Sources that are far from each other may look like the target together, where each "
            'for itself does not: try [target] balance = "joint". Else let clients join whose '
            "contexts are more like the target's, or wait for more rows."
        )
    return "Let clients join whose contexts are more like the target's, or wait for more rows."


def _verdict(record: Record, found: AtTarget) -> str:
    if found.why_not:
        return (
            f"Nothing is claimed about what the policy is worth at {found.client}, which has "
            f"contexts only: {found.why_not}."
        )
    span, words = Span.of(found.values[record.valued_as]), OutcomeWords.of(record.study)
    used = [one.client for one in found.sources if one.used]
    return (
        f"At {found.client}, which has {count(found.n_rows)} rows of contexts and no outcomes, "
        f"{label(record.study, record.chosen)} is expected to come to {span} {words.name} per "
        f"decision. That rests on {listed(used)}: {plural(round(found.effective_rows), 'row')}, in "
        f"effect, of {count(sum(one.n_rows for one in found.sources if one.used))} that "
        f"{'are valued' if record.study.evaluation.is_cross_fitted else 'were held out'}."
    )


def _values(record: Record, found: AtTarget) -> Table:
    words = OutcomeWords.of(record.study)
    spans = alike([Span.of(estimate) for estimate in found.values.values()])
    gains = [Span.of(found.gains[name]) for name in found.values if name in found.gains]
    gained = dict(zip([n for n in found.values if n in found.gains], alike(gains), strict=True))
    return Table(
        caption=f"Expected {words.name} per decision at {found.client} ({words.better}), and what "
        f"{label(record.study, record.chosen)} gains over each action (positive is better)",
        headers=("Policy", "Expected", "95 % interval", "Gain over it", "95 % interval"),
        rows=tuple(
            (opened(label(record.study, name)), span.number, span.interval, *_paired(gained, name))
            for name, span in zip(found.values, spans, strict=True)
        ),
    )


def _paired(gains: Mapping[str, Span], name: str) -> tuple[str, str]:
    own = gains.get(name)
    return (own.number, own.interval) if own else ("–", "–")


def _gain(record: Record, found: AtTarget) -> str:
    if found.gain is None:
        return f"What '{record.best_arm}' is worth there is not known."
    span, there = Span.of(found.gain), found.best_arm_there
    is_best_there = there == arm_name(record.best_arm)
    over = (
        f"Over '{record.best_arm}' for everybody, the best single action at the sources"
        f"{' and there' if is_best_there else ''}, it gains {span} there: "
        f"{_SIGNIFICANT[verdict(span)]}."
    )
    if there is None or is_best_there:
        return over
    own = Span.of(found.gains[there])
    return (
        f"{over} What looks best for everybody there is another single action, "
        f"{label(record.study, there)}: over that, it gains {own}: {_SIGNIFICANT[verdict(own)]}. "
        "That action was picked by these numbers, so its value is rather too high than too low."
    )


def _sources(record: Record, found: AtTarget) -> Table:
    rows = opened(record.study.evaluation.rows_valued)
    is_each = found.balance == "each"
    once = "once they look like the target" if is_each else "under the weights"
    fifth = "Chance" if is_each else "Of all weight"
    return Table(
        caption=(
            f"{rows}, how many rows of equal weight they come to {once}, and what scores "
            f"of {label(record.study, record.chosen)} have beyond models"
        ),
        headers=("Source", "Rows", "Effective", "Beyond models", fifth, "Counts"),
        rows=tuple(_source(one, found) for one in found.sources),
        text_columns=(5,),
    )


def _source(one: TargetSource, found: AtTarget) -> tuple[str, ...]:
    correction = "–"
    if one.correction is not None and one.standard_error is not None:
        correction = f"{decimal(one.correction)} ± {decimal(one.standard_error)}"
    if found.balance == "each":
        fifth = "–" if one.chance is None else f"{one.chance:.2g}"
    else:
        fifth = "–" if one.share is None else percent(one.share)
    effective = count(round(one.effective_rows)) if one.effective_rows else "–"
    counts = "yes" if one.used else f"no: {one.why_not}"
    return one.client, count(one.n_rows), effective, correction, fifth, counts


def _screen(record: Record, found: AtTarget) -> str:
    plan = record.study.target
    level = plan.screen if plan else 0.0
    if found.balance != "each":
        before = any(one.is_left_out for one in found.sources)
        return _NOT_COMPARED.format(
            ", as they were when each found its own weights" if before else ""
        )
    if not level:
        return "The study leaves no source out for its outcomes."
    return (
        "The chance is the probability of a difference from the other sources as large as this, "
        "at the same contexts and over all actions (a Wald test). By the study's rule, the "
        f"source that differs most is left out if its chance is below {level:g} over the number "
        "of sources; then the others are compared again. Only a minority of sources is ever left "
        "out. If the remaining sources still disagree, nothing is claimed."
    )


def _regions(record: Record, found: AtTarget) -> tuple[Part, ...]:
    rows = record.study.evaluation.valued("rows")
    rule = (
        f"Where {percent(GOOD_PART)} of the target or more lie beyond a line, and sources have "
        f"fewer than {LEAST_SEEN} {rows} there, no value is claimed; from {percent(SOME)} "
        "on there is a caution. Lines are straight, so they do not find "
        "people who are unusual in another way."
    )
    table = Table(
        caption="Regions where the target has people, and sources may have few",
        headers=("Region", "Of the target", "Rows of sources there"),
        rows=tuple(
            (opened(one.words), percent(one.share), count(round(one.source_rows)))
            for one in found.regions
        ),
        long_names=True,
    )
    return table, Text(rule, quiet=True)


def _mixture(found: AtTarget) -> tuple[Part, ...]:
    shares = tuple(f"{name}: {percent(share)}" for name, share in sorted(found.mixture.items()))
    skew, gap, agreed = found.skewness, found.gap, found.gap_as_agreed
    assert skew is not None  # noqa: S101  (it comes with the mixture)
    if found.has_joint_weights:
        return Text(_joint_mixture(found, skew)), Points(shares)
    text = (
        "This is the least skewed mixture of sources whose contexts come as near to the target's "
        "as any mixture's, up to a twentieth of a standard deviation. It was found from means "
        f"and squares. Its price is a skewness of {decimal(skew)}: its means are as precise as "
        f"those of 1/{decimal(skew)} of the rows. It leaves a difference of {decimal(gap or 0.0)} "
        "standard deviations in the feature that differs most, where the mixture that the policy "
        f"is learned for leaves {decimal(agreed or 0.0)}. The policy is not learned for it."
    )
    return Text(text), Points(shares)


def _joint_mixture(found: AtTarget, skew: float) -> str:
    return (
        "These are the sources' shares of the weights: the mixture under which all sources' rows "
        "together look like the target, once rows are weighted within each source, too. Its price "
        f"is a skewness of {decimal(skew)}. Together with the weights of rows, it leaves "
        f"{count(round(found.effective_rows))} effective rows. The policy is not learned for it."
    )
