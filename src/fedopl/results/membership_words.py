"""What is known about a policy that was solved again after clients joined or left, in words."""

from typing import TYPE_CHECKING

from fedopl.base.labels import quoted
from fedopl.results.membership import Membership
from fedopl.results.value_tables import Row, arm_name

if TYPE_CHECKING:
    from fedopl.results.record import Record


# A newcomer's gain that rests on fewer held-out rows than this says little.
FEW_HELD_OUT = 30


def who_changed(membership: Membership) -> str:
    """Which clients joined and which left, in a few words."""
    did = [
        f"{quoted(names)} {verb}"
        for names, verb in ((membership.joined, "joined"), (membership.left, "left"))
        if names
    ]
    return " and ".join(did) or "clients joined and left again"


def known_of_it(record: "Record", membership: Membership) -> str:
    """The known value of the policy, and for which clients, in one or two plain sentences."""
    known = membership.of_policy(record.policy)
    told = sorted({row.client for row in known.values})
    others = sorted(set(record.rows) - set(told))
    since = f"The policy was solved again after {who_changed(membership)}"
    if not told:
        return (
            f"{since}, and no client has valued it since: nothing is claimed about what it is "
            "worth."
        )
    gains = {row.client: row for row in known.gains if row.against == arm_name(record.best_arm)}
    said = [_gain(name, gains, known.in_doubt) for name in told]
    unknown = (
        f"; {quoted(others)} were not asked about it, so nothing is claimed there, nor for all "
        "together"
        if others
        else "; all who are in have valued it, each for itself"
    )
    against = arm_name(record.best_arm)
    return f"{since}. Gain over the best constant arm, {against}: {'; '.join(said)}{unknown}."


def _gain(client: str, gains: dict[str, Row], in_doubt: tuple[str, ...]) -> str:
    row = gains.get(client)
    if client in in_doubt:
        return f"in doubt at '{client}', whose answers belie the models, so nothing is claimed"
    if row is None:
        return f"not told at '{client}'"
    (low, high), n_rows = row.interval, row.estimate.n_rows
    few = f", by only {n_rows:,} held-out rows, which say little" if n_rows < FEW_HELD_OUT else ""
    if row.estimate.value == row.estimate.standard_error == 0:
        return f"none at '{client}', where it decides as that arm for all held-out rows{few}"
    found = f"{row.estimate.value:+.4g} (95 % interval {low:.4g} to {high:.4g})"
    return f"{found} at '{client}'{few}"


def since_then(record: "Record", membership: Membership) -> list[str]:
    """What stays unchanged, and what the run said before."""
    notes = []
    if record.study.nuisances.kind == "federated":
        notes.append(
            "Scores are as each client made them when it came, by outcome models from those who "
            "were in then: only a run with everybody makes them anew."
        )
        if membership.left:
            notes.append(f"These models keep what {quoted(membership.left)} added to them.")
    notes.append(f"About the earlier policy, the run says: {membership.before.verdict}")
    return notes
