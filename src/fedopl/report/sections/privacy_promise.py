"""Privacy: what was promised to whom, how much noise it took, and its cost."""

import math

from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.policies.linear import LinearPolicy
from fedopl.privacy.accountant import epsilon_for
from fedopl.report.parts import Part, Section, Table, Text
from fedopl.report.words.numbers import count, decimal, listed, percent, plural
from fedopl.report.words.policy_labels import valued_clients
from fedopl.results.record import Record
from fedopl.study.private.privacy_plan import PrivacyPlan, Range
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.theory.skew import noise_of_each, noise_on_total, skewness

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
    said = (Text(promise(plan)), Text(_rests_on(plan)))
    setting = PrivateSetting(record.study)
    parts: tuple[Part, ...] = (
        *said,
        _noise(record, setting),
        *_measured(setting),
        *_terms_used(record),
        Text(_weights_count(record)),
        *_price(record, setting),
        *_who_was_lacking(record, plan),
        *_told_apart(record, plan),
        *((Text(_BUT_VALUES if plan.values_apart else _NOBODY_KNOWS),) if plan.is_secure else ()),
    )
    return Section(name="privacy", title="Privacy", parts=parts)


def promise(plan: PrivacyPlan) -> str:
    """What differential privacy means here, in words."""
    whom = "any one row" if plan.unit == "row" else "any one person"
    return (
        f"Whether or not {whom} is in a client's data changes the chance of any result of this "
        f"study by at most a factor of {_factor(plan.epsilon)}, except for a probability of "
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


def _told_apart(record: Record, plan: PrivacyPlan) -> tuple[Text, ...]:
    """What values of each client cost, if they were read."""
    if not plan.values_apart:
        return ()
    rest = 1 - plan.values_apart
    told = valued_clients(record)
    lacking = sorted(set(record.mixture) - set(told))
    without = f" {listed(lacking)} did not report them." if lacking else ""
    return (
        Text(
            f"A share of {percent(plan.values_apart)} of the budget of held-out rows went to "
            "values that the server read for each client apart. Every client added all of the "
            f"noise of the promise to its own values.{without} So values of all together have "
            f"{decimal(1 / math.sqrt(rest))} times the noise that they would have without."
        ),
    )


def _who_was_lacking(record: Record, plan: PrivacyPlan) -> tuple[Part, ...]:
    """Which sums lack some clients, if that is possible."""
    if not plan.dropouts:
        return ()
    lacking = record.lacking
    most = plural(plan.dropouts, "client")
    if not lacking:
        return (Text(f"Up to {most} could have been lacking in a sum; none was."),)
    rows = tuple(
        (QUERY_NAMED[query].title, str(exchange + 1), listed(names))
        for exchange, query, names in lacking
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


def _factor(epsilon: float) -> str:
    factor = math.exp(epsilon)
    return decimal(factor) if factor < 100 else count(round(factor))


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
    rows = [
        (
            release.part.what,
            "once" if release.part.times == 1 else f"{release.part.times} times",
            decimal(deviations[name]),
        )
        for name, release in setting.releases.items()
    ]
    return Table(
        caption=f"Noise {_whose(plan)} every number, in units of the study",
        headers=("What left", "How often", "Standard deviation"),
        rows=tuple(rows),
        text_columns=(1,),
    )


def _whose(plan: PrivacyPlan) -> str:
    if plan.values_apart:
        return "in the total of, or where that is said in each client's own of,"
    return "in the total of" if plan.is_secure else "that each client added to"


def _measured(setting: PrivateSetting) -> tuple[Part, ...]:
    """Which ranges were found, if the study searched for them."""
    plan = setting.plan
    if plan.declared_ranges is None:
        return ()
    spent = sum(setting.releases[name].part.share for name in ("means", "spreads"))
    rows = tuple(
        (name, _range(plan.declared_ranges[name]), _range(plan.ranges[name]))
        for name in plan.measured
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


def _range(ends: Range) -> str:
    return f"{ends[0]:g} to {ends[1]:g}"


def _family(record: Record) -> tuple[str, int] | None:
    """The family of terms that the policy uses, and its size; None without a choice."""
    terms, policy = record.study.terms, record.policy
    if terms is None or not isinstance(policy, LinearPolicy):
        return None
    family = next(name for name in terms.families if terms.sizes[name] >= policy.n_used)
    return family, terms.sizes[family]


def _terms_used(record: Record) -> tuple[Text, ...]:
    """Which terms of a basis were worth using."""
    terms, used = record.study.terms, _family(record)
    if terms is None or used is None or len(terms.families) < 2:
        return ()
    family, n_used = used
    richer = "" if family == terms.families[-1] else "; sums with noise gave no clear sign of more"
    return (
        Text(
            f"Of the {count(terms.n_terms)} terms of the basis, {count(n_used)} were used, those "
            f"of {family}{richer}."
        ),
    )


def _weights_count(record: Record) -> str:
    """The effect of the mixture on noise, beside its effect on sampling errors."""
    told = (record.mixture, record.rows)
    kind = record.study.policy.kind
    what = {"tree": "what a tree is found from", "finite": "candidates' scores"}.get(kind, "a step")
    if record.study.privacy and record.study.privacy.is_secure:
        return (
            f"Weights of clients count in noise, too. That of {what} is "
            f"{decimal(noise_on_total(*told))} times as large as if all rows counted the same (the "
            "largest r, a client's weight over its share of rows, e^D∞). Sampling errors are those "
            f"of {decimal(skewness(*told))} times fewer rows (e^D₂, the skewness)."
        )
    return (
        f"Weights of clients count in noise, too. That of {what} is "
        f"{decimal(noise_of_each(*told))} times the noise of one client's answer (√Σr², r being a "
        "client's weight over its share of rows), as each adds its own; added once to the total it "
        "would be "
        f"{decimal(noise_on_total(*told))} times (the largest r, e^D∞). Sampling errors are those "
        f"of {decimal(skewness(*told))} times fewer rows (e^D₂, the skewness)."
    )


def _price(record: Record, setting: PrivateSetting) -> tuple[Text, ...]:
    """How much noise widened the interval of the learned policy's value."""
    if not record.values.rows or record.lacking:  # weights by which it is had are of all
        return ()
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
    without = math.sqrt(1 - share)
    return (
        Text(
            f"Of the variance of the learned policy's value, {percent(share)} is noise: without it "
            f"the interval would be {percent(without)} as wide, or less."
        ),
    )
