"""The advice: which policy is best for each client, as measured, and what regret bounds add."""

from fedopl.analysis.advice import Advice
from fedopl.analysis.attribution import SOURCES, ClientShift, Source
from fedopl.analysis.modelled_gains import global_bound
from fedopl.analysis.three_ways import LEVEL, ThreeWays, Way
from fedopl.report.joining.context import JoiningFacts
from fedopl.report.parts import Part, Points, Table, Text, folded_if_long
from fedopl.report.words.numbers import Span, decimal, listed, percent, plain, plural
from fedopl.report.words.policy_labels import OutcomeWords, opened
from fedopl.report.words.region_words import own_in_regions

# The number of clients above which the table is folded, and above which only clear advice is put in
# words.
_MOST_SHOWN, MOST_WORDED = 30, 12
IN_WORDS: dict[Source, str] = {
    "covariates": "whom it sees",
    "propensities": "how it decided so far",
    "outcomes": "what comes of its decisions",
}
_MODELLED = (
    "The regret bounds are a second opinion. They compare the regret that the client's own "
    "few rows allow (alone) with the regret that all rows allow (together), and with how far "
    "the client lies from the others (shift). The difference is the value of information, 𝒱 "
    "= alone − together − shift. By the bounds joining pays where it is above 0."
)
_HOW_TO_KNOW_MORE = (
    "More can be measured: how far each client's values lie from those of all and why, what more "
    "weight for it would bring, and which clients would learn together. Clients are asked about "
    "it if the study says diagnose = true under [joining], or with learn(diagnose=True)."
)


def advice_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """The overall answer first; then each client's advice in words and in numbers."""
    advice = [facts.advice[name] for name in facts.clients if name in facts.advice]
    if not advice:
        return (Text(_no_values(facts, list(facts.clients))),)
    silent = [name for name in facts.clients if name not in facts.advice]
    clear = [one for one in advice if one.decision != "undecided"]
    worded = advice if len(advice) <= MOST_WORDED else clear[:MOST_WORDED]
    points = tuple(_in_words(facts, one) for one in worded)
    return (
        Text(f"{advice_in_short(advice)} {_measured(facts)}"),
        *((Points(points),) if points else ()),
        *((Text(_no_values(facts, silent)),) if silent else ()),
        *((Text(_MODELLED),) if facts.modelled else ()),
        folded(_table(facts, advice)),
        Text(_about_bounds(facts), quiet=True),
        *((Text(_HOW_TO_KNOW_MORE, quiet=True),) if not facts.record.diagnosis else ()),
    )


def _measured(facts: JoiningFacts) -> str:
    measured = (
        f"This was measured: each client's {facts.valued('rows')} say what the shared policy is "
        "worth there, and what the policy of its own rows alone is worth, decision by decision."
    )
    return f"{measured} {own_in_regions(facts.record)}".rstrip()


def _no_values(facts: JoiningFacts, names: list[str]) -> str:
    return f"{listed(names)} reported no values of {facts.valued('rows')}, so there is no advice."


def advice_in_short(advice: list[Advice]) -> str:
    """Which clients gain by joining, which lose, and which are undecided."""
    of = {
        decision: [one.client for one in advice if one.decision == decision and not one.in_doubt]
        for decision in ("join", "stay alone", "undecided")
    }
    valued = advice[0].valued
    if len(of["undecided"]) == len(advice) > 1:
        return f"For no client do the {valued} show whether joining pays."
    sentences = {
        "Joining pays for": of["join"],
        "It is better to stay alone for": of["stay alone"],
        f"The {valued} cannot decide for": of["undecided"],
        "The measurement is in doubt for": [one.client for one in advice if one.in_doubt],
    }
    return " ".join(f"{text} {listed(names)}." for text, names in sentences.items() if names)


def _in_words(facts: JoiningFacts, one: Advice) -> str:
    # The reason contains no client's name, so every hyphen before a digit is a minus.
    reason = one.reason.replace("(-", "(−").replace(" -", " −")
    said = f"{one.client}: {_decision(one)}. {reason}"
    shift = facts.shifts.get(one.client)
    return f"{said} {_by_source(shift)}".rstrip() if shift else said


def _decision(one: Advice) -> str:
    return f"{one.decision}: 1 group" if one.gain.n_groups == 1 else one.decision


def _by_source(shift: ClientShift) -> str:
    if len(shift.parts) < len(SOURCES):
        return ""
    if shift.largest is None:
        return "It does not differ from the others by more than chance."
    return f"It differs from the others most in {IN_WORDS[shift.largest]} ({shift.largest})."


def _table(facts: JoiningFacts, advice: list[Advice]) -> Table:
    unit = OutcomeWords.of(facts.record.study).name
    headers = ["Client", "Advice", "Measured gain", "95 % interval"]
    headers += [opened(facts.valued("groups"))] * bool(facts.record.values.groups())
    caption = f"Gain by joining in {unit} per decision (positive is better)"
    if facts.modelled:
        headers += ["Alone", "Together", "Shift", "Value (𝒱)", "Pays above"]
        caption += f", measured and by the bounds at constant {plain(facts.constant)}"
    return Table(
        caption=caption,
        headers=tuple(headers),
        rows=tuple(_row(facts, one) for one in advice),
        text_columns=(1,),
    )


def _row(facts: JoiningFacts, one: Advice) -> tuple[str, ...]:
    gain = Span.of(one.gain)
    cells = [one.client, _decision(one), gain.number, gain.interval]
    if groups := facts.record.values.groups():
        cells.append(f"{groups[one.client]:,}")
    if not facts.modelled:
        return tuple(cells)
    if one.client not in facts.modelled:
        return (*cells, *["not known"] * 5)
    known = facts.modelled[one.client]
    parts = known.information
    numbers = (parts.alone, parts.together, parts.shift, parts.value)
    above = "at none" if known.break_even is None else decimal(known.break_even)
    return (*cells, *map(decimal, numbers), above)


def _about_bounds(facts: JoiningFacts) -> str:
    """What the bounds do not claim."""
    bound = global_bound(facts.record)
    if bound is None:
        return (
            "Regret bounds grow with the complexity of the class of policies, which is not "
            f"known for networks: the advice rests on {facts.valued('rows')} alone."
        )
    proven = bound.total
    measured = max(abs(one.gain.value) for one in facts.advice.values())
    useless = "bounds that large decide nothing, and " if proven > measured else ""
    unit = OutcomeWords.of(facts.record.study).name
    large = (
        "With the constants of the proofs, the bound on the shared policy's regret is "
        f"{decimal(proven)} {unit} per decision, while the largest difference measured above is "
        f"{decimal(measured)}: "
        f"{useless}the advice rests on {facts.valued('rows')} alone."
    )
    if not facts.modelled:
        return f"The regret bounds say nothing here. {large}"
    return (
        f"The theorems leave a constant open. Here it is {plain(facts.constant)}: the numbers show "
        "how the parts compare, not how large regret may be. “Pays above” is the constant above "
        f"which joining pays by the bounds. {_which_shift(facts)} {large}"
    )


def _which_shift(facts: JoiningFacts) -> str:
    kinds = {known.shift_by for known in facts.modelled.values()}
    if kinds == {"discrepancy"}:
        return "The shift is the measured discrepancy."
    if kinds == {"total variation"}:
        return "The shift is the total variation times the largest score that was declared."
    return "The shift is the measured discrepancy, or else total variation times largest score."


def folded(table: Table) -> Part:
    """The table; folded away if it is long."""
    return folded_if_long(
        table, _MOST_SHOWN, f"{table.caption}: {plural(len(table.rows), 'client')}"
    )


_IN_WORDS: dict[Way, str] = {
    "shared": "the shared policy",
    "personal": "its personal policy",
    "alone": "the policy of its own rows alone",
}
_WHAT = (
    "There are three policies for each client: the shared policy; the policy of its own rows "
    "alone; and its personal policy. The personal policy is that of all other clients, moved "
    "toward the client's own rows as far as these support it. Each client solved for its "
    "personal policy itself and reported only what it is worth."
)


def personal_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """The table; empty if clients have no personal policies."""
    found = [facts.ways[name] for name in facts.clients if name in facts.ways]
    if not found:
        return ()
    return (Text(f"{ways_in_short(found)} {_WHAT}"), folded(_ways_table(facts, found)))


def ways_in_short(found: list[ThreeWays]) -> str:
    """For which clients which policy is surely best, and for which clients rows cannot tell."""
    sentences = []
    for way, words in _IN_WORDS.items():
        names = [one.client for one in found if one.decision == way]
        if names:
            sentences.append(f"For {listed(names)}, {words} is best.")
    joins = [one.client for one in found if one.decision == "undecided" and one.surely_joins]
    if joins:
        sentences.append(
            f"For {listed(joins)}, learning alone is surely not best; the rows "
            "cannot decide between the shared policy and the personal one."
        )
    told = {one.client for one in found if one.decision != "undecided"} | set(joins)
    if not told:
        return "For no client can the rows decide which of three policies is best."
    if open_ones := [one.client for one in found if one.client not in told]:
        sentences.append(f"The rows cannot decide for {listed(open_ones)}.")
    return " ".join(sentences)


def how_sure(one: ThreeWays) -> str:
    """The best policy, and which others are not ruled out."""
    if one.in_doubt:
        return "in doubt"
    if not one.as_good:
        return f"{one.best}, surely"
    return f"{one.best}; or {' or '.join(one.as_good)}"


def _ways_table(facts: JoiningFacts, found: list[ThreeWays]) -> Table:
    unit, rows = OutcomeWords.of(facts.record.study).name, facts.record.study.evaluation.rows_valued
    return Table(
        caption=f"Gains in {unit} per decision on {rows}, with {percent(LEVEL)} intervals: "
        "the three of a client hold together with 95 %",
        headers=(
            "Client",
            "Best",
            "Personal over shared",
            "Personal over alone",
            "Shared over alone",
        ),
        rows=tuple((one.client, how_sure(one), *_gains(one)) for one in found),
        text_columns=(1,),
    )


def _gains(one: ThreeWays) -> list[str]:
    found = (one.personal_over_shared, one.personal_over_alone, one.shared_over_alone)
    return [Span.of(gain, LEVEL).in_lines for gain in found]
