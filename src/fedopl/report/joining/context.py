"""What a record says about joining, computed once for the page, the command line and JSON."""

from dataclasses import dataclass

from fedopl.analysis.advice import Advice, advise
from fedopl.analysis.attribution import ClientShift, shifts_of
from fedopl.analysis.modelled_gains import Modelled, modelled
from fedopl.analysis.three_ways import ThreeWays, three_ways
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.report.words.numbers import count
from fedopl.report.words.policy_labels import (
    has_network,
    only_together,
    opened,
    valued_clients,
)
from fedopl.report.words.region_words import one_client_alone
from fedopl.results.model_doubts import clients_in_doubt
from fedopl.results.record import Record
from fedopl.results.value_tables import MOST_VALUED_ALONE
from fedopl.study.private.added_up import adds_under_masks
from fedopl.theory.checks import positive

# Every two clients' contexts are compared; beyond this many clients that takes minutes.
MOST_APART = 100


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

    @property
    def is_about_all(self) -> bool:
        """Whether the facts are about every client."""
        return len(self.clients) == len(self.record.mixture)

    def valued(self, units: str) -> str:
        """The word for the rows or groups that are valued."""
        return self.record.study.evaluation.valued(units)


def joining_facts(record: Record, constant: float = 1.0, client: str | None = None) -> JoiningFacts:
    """The facts about all clients, or about `client` alone."""
    positive(constant, "constant")
    everybody = sorted(record.mixture)
    if client is not None and client not in everybody:
        raise OptionError(f"client: '{client}' is not one of {quoted(everybody)}")
    shifts = _shifts(record)
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


def _shifts(record: Record) -> dict[str, ClientShift]:
    """Shifts by client; with too many clients, without the sources, which bounds do not need."""
    names = sorted(record.statistics.sums)
    if len(names) <= MOST_APART:
        return shifts_of(record)
    return {name: ClientShift(client=name, parts={}, joint=None) for name in names}
