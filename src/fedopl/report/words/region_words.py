"""Aggregators in words: what is said of such a client is about its members together."""

from fedopl.report.words.numbers import listed
from fedopl.results.record import Record


def regions(record: Record) -> list[str]:
    """The aggregators that speak to the server, sorted."""
    return sorted(set(record.study.aggregators) & set(record.mixture))


def who_adds_up(record: Record) -> str:
    """Who adds up whose answers, as a sentence; empty if nobody does."""
    names = regions(record)
    if not names:
        return ""
    if len(names) == 1:
        who = names[0]
        return f"{who} is an aggregator: it adds up its members' answers and counts as one client."
    return (
        f"{listed(names)} are aggregators: each adds up its members' answers and counts as one "
        "client."
    )


def _of_regions(record: Record, what: str) -> str:
    """A sentence about regions; empty without any."""
    names = regions(record)
    return what.format(listed(names)) if names else ""


def support_in_regions(record: Record) -> str:
    """A sentence that a sum over members does not show that of each; empty without regions."""
    return _of_regions(
        record,
        "Of {}, this is the support in all members together: at one of them, an action may have "
        "none.",
    )


def own_in_regions(record: Record) -> str:
    """A sentence on what own policies of regions are; empty without regions."""
    return _of_regions(
        record,
        "For {}, this is what each member would learn alone, and its value is the mean over "
        "members.",
    )


def sent_by_regions(record: Record) -> str:
    """A sentence on what left members; empty without regions."""
    return _of_regions(
        record,
        "Of {}, the numbers below are those of what it sent on, one answer for all its members. "
        "It has read each member's own answers; what left a member is in that member's ledger.",
    )


def one_client_alone(record: Record) -> str:
    """What a run with a single client cannot say about joining."""
    if names := regions(record):
        return (
            f"There is only one client, {names[0]}, and it adds up its members' answers. What "
            "joining brings a member is known to nobody above it."
        )
    return "There is only one client, so there are no others to join."
