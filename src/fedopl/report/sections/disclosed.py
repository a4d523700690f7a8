"""What left each client, and what was promised: how much noise it took, and its cost."""

import math

from fedopl.messages.answer_words import arrays_in_words
from fedopl.messages.private.noised_scores import ValueApart
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.policies.linear import LinearPolicy
from fedopl.privacy.accountant import epsilon_for
from fedopl.report.parts import Part, Section, Table, Text, folded_if_long, texts
from fedopl.report.words.numbers import count, decimal, listed, percent, plural, size
from fedopl.report.words.policy_labels import SENT_FOR_MEMBERS, of_regions, valued_clients
from fedopl.results.record import Record
from fedopl.results.value_tables import MOST_VALUED_ALONE
from fedopl.study.private.added_up import adds_under_masks, most_lacking
from fedopl.study.private.privacy_plan import PrivacyPlan, contract_of
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study
from fedopl.theory.skew import noise_of_each, noise_on_total, skewness

_ROWS_STAYED = (
    "Rows stayed where they are. Clients answer questions from a closed list. The size of an "
    "answer depends on the number of features, actions, folds, bins, cells or leaves, never on "
    "the number of rows: no message can hold a row. Each client also keeps its own ledger of what "
    "it released."
)
_WITH_NOISE = (
    "With differential privacy, every number computed from rows has noise, except the number "
    "of rows. How many rows took each action was left out of enrolment."
)
_UNDER_MASKS = (
    "All answers but {others} left under masks, as whole numbers that look random. What is "
    "listed below could be read from their total over all clients, and from nothing less."
)
_NOT_MASKED = "the first and the keys"
_NOR_APART = "the first, the keys and values that the study has read of each client apart"
_WITH_SHARES = (
    "As clients could be lacking, that is the total over the clients that answered. Each "
    "client had sent shares of the secrets behind its masks to the others; each share can be "
    "read by one of them. Each client helped to remove the masks from a sum once, over one "
    "set of clients."
)


def disclosed(record: Record) -> Section:
    """The section."""
    queries = list(dict.fromkeys(latest.query for latest in record.rounds))
    study = record.study
    others = _NOR_APART if ValueApart.needed(study) else _NOT_MASKED
    said = texts(
        _ROWS_STAYED,
        contract_of(study),
        _WITH_NOISE if study.privacy else "",
        _UNDER_MASKS.format(others=others) if adds_under_masks(study) else "",
        _WITH_SHARES if most_lacking(study) else "",
        of_regions(record, SENT_FOR_MEMBERS),
    )
    parts = (*said, _kinds(queries, study), _by_client(record, queries))
    return Section(name="left", title="What left each client", parts=parts)


def _kinds(names: list[str], study: Study) -> Table:
    queries = [QUERY_NAMED[name] for name in names]
    return Table(
        caption="What each kind of answer holds (+ 1: an intercept, + 2: also the reward)",
        headers=("Asked", "The answer holds", "Numbers, and what they are counted in"),
        rows=tuple(
            (query.title, query.content_in(study), "; ".join(arrays_in_words(query, study)))
            for query in queries
        ),
        text_columns=(1, 2),
    )


def _by_client(record: Record, queries: list[str]) -> Part:
    names = sorted({name for latest in record.rounds for name in (*latest.asked, *latest.received)})
    if len(names) > MOST_VALUED_ALONE:
        return _of_all(record, queries, len(names))
    table = Table(
        caption="How often each client answered, and how many bytes that were",
        headers=("Client", *(QUERY_NAMED[query].title for query in queries), "In all"),
        rows=tuple(
            (name, *(_cell(record, name, query) for query in queries), size(total))
            for name in names
            for total in [sum(latest.received.get(name, 0) for latest in record.rounds)]
        ),
    )
    return folded_if_long(table)


def _of_all(record: Record, queries: list[str], n_clients: int) -> Table:
    """Of very many clients, what left all of them together."""
    asked = {query: [one for one in record.rounds if one.query == query] for query in queries}
    return Table(
        caption=f"How often the {count(n_clients)} clients answered, and how many bytes that were",
        headers=("Asked", "Answers", "Bytes"),
        rows=tuple(
            (
                QUERY_NAMED[query].title,
                count(sum(len(one.answered) for one in own)),
                size(sum(one.bytes_received for one in own)),
            )
            for query, own in asked.items()
        ),
    )


def _cell(record: Record, name: str, query: str) -> str:
    rounds = [latest for latest in record.rounds if latest.query == query]
    times = sum(name in latest.answered for latest in rounds)
    refused = sum(name in latest.refused for latest in rounds)
    rejected = sum(name in latest.rejected for latest in rounds)
    n_bytes = sum(latest.received.get(name, 0) for latest in rounds)
    lines = [plural(times, "answer")] if times else []
    lines += [f"{count(refused)} refused"] if refused else []
    lines += [f"{count(rejected)} rejected"] if rejected else []
    return "\n".join([*lines, size(n_bytes)] if lines else ["nothing"])


_NOBODY_KNOWS = (
    "The server read only totals. So this report lacks some results that other reports have: "
    "what a policy is worth at one client, who gains and who loses, what a client would "
    "learn alone, how clients differ, what the result would be without one of them, and "
    "which client's answer was wrong if one was. Each would need numbers of a single client, "
    "which only that client has."
)
_BUT_VALUES = (
    "Beside totals the server read what the compared policies are worth at each client that "
    "reported it, and nothing else about a single client. So this report lacks some results "
    "that other reports have: what a client would learn alone, how clients differ in more "
    "than these values, what the result would be without one of them, and which client's "
    "answer in a total was wrong if one was."
)


def privacy_promise(record: Record) -> Section | None:
    """The section, or None if sums were exact."""
    plan = record.study.privacy
    if plan is None:
        return None
    setting = PrivateSetting(record.study)
    not_known = _BUT_VALUES if plan.values_apart else _NOBODY_KNOWS
    parts = (
        *texts(promise(plan), _rests_on(plan)),
        _noise(record, setting),
        *_measured(setting),
        *texts(_terms_used(record), _weights_count(record), _price(record, setting)),
        *_who_was_lacking(record, plan),
        *texts(_told_apart(record, plan), not_known if plan.is_secure else ""),
    )
    return Section(name="privacy", title="Privacy", parts=parts)


def promise(plan: PrivacyPlan) -> str:
    """What differential privacy means here, in words."""
    whom = "any one row" if plan.unit == "row" else "any one person"
    factor = math.exp(plan.epsilon)
    return (
        f"Whether or not {whom} is in a client's data changes the chance of any result of this "
        "study by at most a factor of "
        f"{decimal(factor) if factor < 100 else count(factor)}, except for a probability of "
        f"{plan.delta:g} (differential privacy with ε = {plan.epsilon:g}, δ = {plan.delta:g}). "
        f"{_against_whom(plan)}"
    )


def _against_whom(plan: PrivacyPlan) -> str:
    if not plan.is_secure or not plan.keys:
        return (
            "That holds whatever else anybody knows, even if the server is dishonest: every "
            "client added noise to its own answers before they left."
        )
    masked = "Answers left under masks that cancel in the sum over all clients, and in no other sum"
    if plan.dropouts:
        masked = (
            "Answers left under masks that can be removed from one sum, over all clients "
            "that answered"
        )
    if plan.values_apart:
        masked += (
            "; in addition, values of each client left without a mask, each with all of the noise"
        )
    if plan.noise == "local":
        return (
            "That holds whatever else anybody knows, even if the server and the other "
            "clients are dishonest: every client added all of the noise to its own answers. "
            f"{masked}."
        )
    collude = plural(plan.colluders, "client tells", "clients tell")
    away = plural(plan.dropouts, "client is lacking", "clients are lacking")
    lacking = f", and at most {away} in a sum" if plan.dropouts else ""
    alone = epsilon_for(plan.mu_alone, plan.delta)
    return (
        "That holds whatever else anybody knows, even if the server is dishonest, if at most "
        f"{collude} it all they know{lacking}. {masked}; every client added a part of the noise, "
        f"and {count(plan.n_sharing_noise)} of {count(len(plan.keys))} parts are as much as is "
        "promised. If all other clients collude against one client, its own part of the noise "
        f"would still promise ε = {alone:.3g}."
    )


def _told_apart(record: Record, plan: PrivacyPlan) -> str:
    """What values of each client cost; empty if they were not read."""
    if not plan.values_apart:
        return ""
    lacking = sorted(set(record.mixture) - set(valued_clients(record)))
    without = f" {listed(lacking)} did not report them." if lacking else ""
    return (
        f"A share of {percent(plan.values_apart)} of the budget of held-out rows went to values "
        "that the server read for each client apart. Every client added all of the noise of the "
        f"promise to its own values.{without} So values of all together have "
        f"{decimal(1 / math.sqrt(1 - plan.values_apart))} times the noise that they would have "
        "without."
    )


def _who_was_lacking(record: Record, plan: PrivacyPlan) -> tuple[Part, ...]:
    """Which sums lack some clients, if that is possible."""
    if not plan.dropouts:
        return ()
    most = plural(plan.dropouts, "client")
    if not record.lacking:
        return (Text(f"Up to {most} could have been lacking in a sum; none was."),)
    rows = tuple(
        (QUERY_NAMED[query].title, str(exchange + 1), listed(names))
        for exchange, query, names in record.lacking
    )
    said = (
        f"Up to {most} could be lacking in a sum, and some were. Such a sum is over the other "
        "clients. It counts for the mixture over these, with weights in the same proportion. "
        "It has less noise than above, but no less than is promised. Nothing was read from "
        "the lacking clients."
    )
    headers = ("Sum", "Exchange", "Lacking")
    table = Table(caption="Who was lacking", headers=headers, rows=rows, text_columns=(1, 2))
    return (Text(said), table)


def _rests_on(plan: PrivacyPlan) -> str:
    several = (
        f" Of a person with more than {plan.most_rows_per_person} rows, the further rows were "
        "left out."
        if plan.unit == "person"
        else ""
    )
    taking_part = " and who takes part in a step" if plan.sampled < 1 else ""
    return (
        "How many rows a client has is public. The promise rests on each client's secret, which "
        f"determines the noise{taking_part}, and on the ranges that the study declares: outcomes "
        "beyond their range are moved to its ends, and rows whose features lie far out count for "
        f"less.{several} The promise is for this study. Every further study of the same rows adds "
        "to what may be learned about them; the client's ledger counts this."
    )


def _noise(record: Record, setting: PrivateSetting) -> Table:
    deviations = {name: release.deviation for name, release in setting.releases.items()}
    plan = setting.plan
    if (family := _family(record)) and "step" in deviations:
        deviations["step"] = setting.step_deviation(family[1])  # less, for fewer terms
    if plan.is_secure:
        of_total = {n: one for n, one in setting.releases.items() if not one.part.of_one}
        deviations |= {n: plan.noise_of_total * deviations[n] for n in of_total}
    whose = "in the total of" if plan.is_secure else "that each client added to"
    if plan.values_apart:
        whose = "in the total of, or where that is said in each client's own of,"
    return Table(
        caption=f"Noise {whose} every number, in units of the study",
        headers=("What left", "How often", "Standard deviation"),
        rows=tuple(
            (
                release.part.what,
                "once" if release.part.times == 1 else f"{release.part.times} times",
                decimal(deviations[name]),
            )
            for name, release in setting.releases.items()
        ),
        text_columns=(1,),
    )


def _measured(setting: PrivateSetting) -> tuple[Part, ...]:
    """Which ranges were found, if the study searched for them."""
    plan = setting.plan
    if plan.declared_ranges is None:
        return ()
    spent = sum(setting.releases[name].part.share for name in ("means", "spreads"))
    ends = (plan.declared_ranges, plan.ranges)
    rows = tuple(
        (name, *(f"{of[name][0]:g} to {of[name][1]:g}" for of in ends)) for name in plan.measured
    )
    said = (
        f"A share of {percent(spent)} of the budget of learning was first spent on finding "
        "where numbers lie within their declared ranges. All later steps used the ranges "
        "that were found: two standard deviations to either side of the mean, as far as the "
        "noise allowed."
    )
    headers = ("Number", "Declared", "Found")
    table = Table(caption="Ranges", headers=headers, rows=rows, text_columns=(1, 2))
    return (Text(said), table)


def _family(record: Record) -> tuple[str, int] | None:
    """The family of terms that the policy uses, and its size; None without a choice."""
    terms, policy = record.study.terms, record.policy
    if terms is None or not isinstance(policy, LinearPolicy):
        return None
    family = next(name for name in terms.families if terms.sizes[name] >= policy.n_used)
    return family, terms.sizes[family]


def _terms_used(record: Record) -> str:
    """Which terms of a basis were worth using; empty without a choice."""
    terms, used = record.study.terms, _family(record)
    if terms is None or used is None or len(terms.families) < 2:
        return ""
    family, n_used = used
    richer = "" if family == terms.families[-1] else "; sums with noise gave no clear sign of more"
    return (
        f"Of the {count(terms.n_terms)} terms of the basis, {count(n_used)} were used, those of "
        f"{family}{richer}."
    )


def _weights_count(record: Record) -> str:
    """The effect of the mixture on noise, beside its effect on sampling errors."""
    told = (record.mixture, record.rows)
    kind = record.study.policy.kind
    what = {"tree": "what a tree is found from", "finite": "candidates' scores"}.get(kind, "a step")
    on_total = decimal(noise_on_total(*told))
    times = (
        f"{decimal(noise_of_each(*told))} times the noise of one client's answer (√Σr², r being a "
        "client's weight over its share of rows), as each adds its own; added once to the total it "
        f"would be {on_total} times (the largest r, e^D∞)"
    )
    if record.study.privacy and record.study.privacy.is_secure:
        times = (
            f"{on_total} times as large as if all rows counted the same (the largest r, a client's "
            "weight over its share of rows, e^D∞)"
        )
    return (
        f"Weights of clients count in noise, too. That of {what} is {times}. Sampling errors are "
        f"those of {decimal(skewness(*told))} times fewer rows (e^D₂, the skewness)."
    )


def _price(record: Record, setting: PrivateSetting) -> str:
    """How much noise widened the interval of the learned policy's value; empty if not known."""
    if not record.values.rows or record.lacking:  # weights by which it is had are of all
        return ""
    found, half = record.values.of(record.chosen), setting.scales.half_range
    held_out = {
        row.client: row.estimate.n_rows
        for row in record.values.rows
        if row.policy == record.chosen and row.client in record.mixture
    }
    factor = setting.noise_of_scores[0, 0]  # of the learned policy
    weights = [record.mixture[name] / n_rows for name, n_rows in held_out.items()]
    if setting.plan.is_secure:
        largest = noise_on_total(record.mixture, record.rows) / found.n_rows
        weights = [setting.plan.noise_of_total * largest]
    noise = half * setting.deviation("values")
    variance = factor * sum((weight * noise) ** 2 for weight in weights)
    share = min(variance / found.standard_error**2, 1.0)
    return (
        f"Of the variance of the learned policy's value, {percent(share)} is noise: without it the "
        f"interval would be {percent(math.sqrt(1 - share))} as wide, or less."
    )
