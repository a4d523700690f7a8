"""What a record says about joining: the facts, the advice, and what regret bounds add to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from fedopl.analysis.advice import LEVEL, Advice, ThreeWays, Way, advise, three_ways
from fedopl.analysis.attribution import SOURCES, ClientShift, Source, shifts_of
from fedopl.analysis.modelled_gains import Modelled, global_bound, modelled
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.report.parts import Part, Points, Table, Text, folded_if_long, texts
from fedopl.report.words.numbers import Span, count, decimal, listed, percent, plain, plural
from fedopl.report.words.policy_labels import (
    OWN_OF_MEMBERS,
    OutcomeWords,
    has_network,
    of_regions,
    one_client_alone,
    only_together,
    opened,
    valued_clients,
)
from fedopl.results.model_doubts import clients_in_doubt
from fedopl.results.record import Record
from fedopl.results.value_tables import MOST_VALUED_ALONE
from fedopl.study.private.added_up import adds_under_masks
from fedopl.theory.checks import positive

# Every two clients' contexts are compared; beyond this many clients that takes minutes.
MOST_APART = 100

Told = TypeVar("Told")


@dataclass(frozen=True, eq=False, kw_only=True)
class JoiningFacts:
    """The facts behind all texts, tables and figures about joining."""

    record: Record
    constant: float  # that the bounds take
    clients: tuple[str, ...]  # whom it is about
    advice: dict[str, Advice]
    modelled: dict[str, Modelled]
    shifts: dict[str, ClientShift]
    ways: dict[str, ThreeWays]  # none where clients have no personal policies

    def of_clients(self, found: Mapping[str, Told]) -> list[tuple[str, Told]]:
        """What was found of the clients that it is about, by name."""
        return [(name, one) for name, one in found.items() if name in self.clients]

    def valued(self, units: str) -> str:
        """The word for the rows or groups that are valued."""
        return self.record.study.evaluation.valued(units)


def joining_facts(record: Record, constant: float = 1.0, client: str | None = None) -> JoiningFacts:
    """The facts about all clients, or about `client` alone."""
    positive(constant, "constant")
    everybody = sorted(record.mixture)
    if client is not None and client not in everybody:
        raise OptionError(f"client: '{client}' is not one of {quoted(everybody)}")
    # With too many clients, without the sources, which bounds do not need.
    names = sorted(record.statistics.sums)
    shifts = {name: ClientShift(client=name, parts={}, joint=None) for name in names}
    if len(names) <= MOST_APART:
        shifts = shifts_of(record)
    known = modelled(record, shifts, constant)
    information = {name: found.information for name, found in known.items()}
    advice = advise(
        record.gains,
        information,
        valued=record.study.evaluation.valued("rows"),
        in_doubt=clients_in_doubt(record),
    )
    return JoiningFacts(
        record=record,
        constant=constant,
        clients=tuple(everybody) if client is None else (client,),
        advice={one.client: one for one in advice},
        modelled=known,
        shifts=shifts,
        ways=three_ways(record, clients_in_doubt(record)),
    )


def nothing_to_say(record: Record) -> str | None:
    """A sentence on why nothing is known about joining; None if something is known."""
    if len(record.mixture) < 2:
        return one_client_alone(record)
    if adds_under_masks(record.study):
        differ = "" if valued_clients(record) else ", or how clients differ"
        return (
            "Answers of clients were added up under masks, so it is not known what a client "
            f"would learn alone{differ}: nothing is claimed about joining."
        )
    if record.membership and not record.values.rows:
        return (
            "Clients joined or left after the run, and not all present clients valued the policy "
            "as it is now: nothing is claimed about joining. The report of the run before says "
            "what it was worth then."
        )
    if only_together(record):
        return (
            f"Of more than {count(MOST_VALUED_ALONE)} clients, a run keeps what they say "
            "together, so nothing is claimed about joining."
        )
    if not valued_clients(record):
        rows = record.study.evaluation.valued("rows")
        return f"There are no values of {rows}, so nothing is claimed about joining."
    if record.study.privacy:
        return (
            "With differential privacy, a client's own policy is what its first sums give, with "
            "noise. What it would learn alone without noise is not known, so nothing is claimed "
            "about joining."
        )
    if has_network(record):
        return (
            "The learned policy has a network, and what a client would learn alone is linear: "
            "their difference is not what joining brings. A study with a linear policy measures "
            "that."
        )
    if record.in_doubt:
        return f"{opened(record.in_doubt)}, so nothing is claimed about joining."
    return None


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
    rows = facts.valued("rows")
    silent = listed([name for name in facts.clients if name not in facts.advice])
    no_values = f"{silent} reported no values of {rows}, so there is no advice." if silent else ""
    if not advice:
        return texts(no_values)
    measured = (
        f"This was measured: each client's {rows} say what the shared policy is worth there, and "
        "what the policy of its own rows alone is worth, decision by decision. "
        f"{of_regions(facts.record, OWN_OF_MEMBERS)}"
    )
    clear = [one for one in advice if one.decision != "undecided"]
    worded = advice if len(advice) <= MOST_WORDED else clear[:MOST_WORDED]
    points = Points(tuple(_in_words(facts, one) for one in worded))
    return (
        Text(f"{advice_in_short(advice)} {measured}".rstrip()),
        *((points,) if worded else ()),
        *texts(no_values, _MODELLED if facts.modelled else ""),
        folded(_table(facts, advice)),
        Text(_about_bounds(facts), quiet=True),
        *((Text(_HOW_TO_KNOW_MORE, quiet=True),) if not facts.record.diagnosis else ()),
    )


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
    if shift is None or len(shift.parts) < len(SOURCES):
        return said.rstrip()
    if shift.largest is None:
        return f"{said} It does not differ from the others by more than chance."
    most = f"{IN_WORDS[shift.largest]} ({shift.largest})"
    return f"{said} It differs from the others most in {most}."


def _decision(one: Advice) -> str:
    return f"{one.decision}: 1 group" if one.gain.n_groups == 1 else one.decision


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
    measured = max(abs(one.gain.value) for one in facts.advice.values())
    useless = "bounds that large decide nothing, and " if bound.total > measured else ""
    unit = OutcomeWords.of(facts.record.study).name
    large = (
        "With the constants of the proofs, the bound on the shared policy's regret is "
        f"{decimal(bound.total)} {unit} per decision, while the largest difference measured above "
        f"is {decimal(measured)}: {useless}the advice rests on {facts.valued('rows')} alone."
    )
    if not facts.modelled:
        return f"The regret bounds say nothing here. {large}"
    kinds = {known.shift_by for known in facts.modelled.values()}
    shift = "measured discrepancy, or else total variation times largest score"
    if kinds == {"discrepancy"}:
        shift = "measured discrepancy"
    elif kinds == {"total variation"}:
        shift = "total variation times the largest score that was declared"
    return (
        f"The theorems leave a constant open. Here it is {plain(facts.constant)}: the numbers show "
        "how the parts compare, not how large regret may be. “Pays above” is the constant above "
        f"which joining pays by the bounds. The shift is the {shift}. {large}"
    )


def folded(table: Table) -> Part:
    """The table; folded away if it is long."""
    summary = f"{table.caption}: {plural(len(table.rows), 'client')}"
    return folded_if_long(table, _MOST_SHOWN, summary)


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
    undecided = [one for one in found if one.decision == "undecided"]
    joins = [one.client for one in undecided if one.surely_joins]
    others = [one.client for one in undecided if not one.surely_joins]
    if len(others) == len(found):
        return "For no client can the rows decide which of three policies is best."
    best = {
        words: [one.client for one in found if one.decision == way]
        for way, words in _IN_WORDS.items()
    }
    said = [f"For {listed(names)}, {words} is best." for words, names in best.items() if names]
    if joins:
        said.append(
            f"For {listed(joins)}, learning alone is surely not best; the rows "
            "cannot decide between the shared policy and the personal one."
        )
    return " ".join([*said, *([f"The rows cannot decide for {listed(others)}."] if others else [])])


def how_sure(one: ThreeWays) -> str:
    """The best policy, and which others are not ruled out."""
    sure = f"{one.best}; or {' or '.join(one.as_good)}" if one.as_good else f"{one.best}, surely"
    return "in doubt" if one.in_doubt else sure


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
        rows=tuple(
            (
                one.client,
                how_sure(one),
                Span.of(one.personal_over_shared, LEVEL).in_lines,
                Span.of(one.personal_over_alone, LEVEL).in_lines,
                Span.of(one.shared_over_alone, LEVEL).in_lines,
            )
            for one in found
        ),
        text_columns=(1,),
    )
