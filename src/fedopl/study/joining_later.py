"""Clients that join or leave after a run: whether a study allows it, and the study after that.

A study names no clients unless its mixture gives each a share. So with any other mixture, a
newcomer agrees to exactly the study of the run. With given shares, the study gets one more share.
"""

from collections.abc import Collection, Mapping
from typing import Any

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.policies.trees.tree_plan import LOOK_AHEAD
from fedopl.study.mixture import FOUND, Given, renormalised
from fedopl.study.study import Study

_ANEW = "run a new study with all clients that are to take part"


def why_fixed(study: Study) -> str | None:
    """Why no client can join or leave a finished run of this study; None if clients can."""
    return _why_private(study) or _why_not_solved(study) or _why_not_valued(study)


def why_no_newcomer(study: Study) -> str | None:
    """Why no client can join a finished run of this study, though clients may leave it."""
    if study.nuisances.outcome == "plugged-in":
        return (
            "its outcome models are plugged-in code, which no run stores; learn anew with "
            "all clients that are to take part"
        )
    return why_fixed(study)


def _why_private(study: Study) -> str | None:
    if study.privacy is None:
        return None
    if study.privacy.is_secure:
        return (
            "answers were added up under masks, so the run holds no sums of a single client "
            "to leave out. The total with a newcomer less the total without it would be the "
            f"newcomer's own sums, which the masks are to hide; {_ANEW}"
        )
    return (
        "with differential privacy a policy is learned from sums with noise. That noise was "
        f"drawn and accounted for once, for one set of clients; {_ANEW}: that costs each client "
        "its epsilon again"
    )


def _why_not_solved(study: Study) -> str | None:
    """Why the available sums do not give the policy again; None if they do."""
    plan = study.policy
    if plan.has_leaves and not plan.on_grid:
        return f"the thresholds of its tree are observed values of one client; {_ANEW}, on the grid"
    if study.doubts_leaves:
        return f"standard errors of its tree's leaves need the rows of all clients; {_ANEW}"
    if plan.has_leaves and study.tree.depth > LOOK_AHEAD:
        return (
            f"a tree of depth {study.tree.depth} is grown by asking all clients level by "
            f"level, and only up to depth {LOOK_AHEAD} can it be found again from sums; "
            f"{_ANEW}"
        )
    if not plan.has_leaves and not plan.can_be_resolved:
        how = study.linear.oracle if plan.kind == "linear" else f"kind = '{plan.kind}'"
        return (
            f"its policy was found by asking all clients ({how}), and only policies by "
            f"csoaa-exact and trees on a grid can be found again from sums; {_ANEW}"
        )
    if study.target:
        return (
            f"what the policy is worth at '{study.target.client}' was found by asking all "
            f"clients, who would have to be asked again; {_ANEW}"
        )
    if study.mixture.kind in FOUND:
        return f"its mixture, '{study.mixture.kind}', was found by asking all clients; {_ANEW}"
    return None


def _why_not_valued(study: Study) -> str | None:
    """Which promise about the policy can only be checked by asking all clients; None if none."""
    if study.budget:
        return f"what another policy spends is not known without asking all clients; {_ANEW}"
    if study.guardrails:
        return (
            "whether another policy keeps guardrails can only be measured on the rows of all "
            f"clients; {_ANEW}"
        )
    if study.evaluation.refits:
        return f"its values are of a policy that was learned without the held-out rows; {_ANEW}"
    if study.evaluation.splits > 1:
        return f"its values are medians over several splits of the rows of all clients; {_ANEW}"
    if study.is_cautious and study.evaluation.is_cross_fitted:
        return f"standard errors by fold, which cross-fitted values need, are not stored; {_ANEW}"
    return None


def study_with(
    study: Study, newcomers: Collection[str], shares: Mapping[str, float], clients: Collection[str]
) -> Study:
    """The study that these newcomers agree to, if `clients` take part already.

    If its mixture gives every client a share, `shares` must do so as well; the shares of others
    shrink in proportion.
    """
    mixture = study.mixture
    if not isinstance(mixture, Given):
        if shares:
            raise OptionError(
                f"share: the mixture of this study is '{mixture.kind}', which already decides "
                "how much a newcomer counts; leave the share out"
            )
        return study
    if len(newcomers) != 1 or set(shares) != set(newcomers):
        raise OptionError(
            "share: the mixture of this study gives every client a share, so clients join one by "
            f"one, each with its own, as in --share 0.2; came {len(newcomers)} clients and shares "
            f"for {quoted(sorted(shares)) or 'none of them'}"
        )
    ((name, share),) = shares.items()
    if not 0 < share < 1:
        raise OptionError(f"share: expected more than 0 and less than 1, came {share:g}")
    others, known = set(clients) - {name}, mixture.shares
    own = known if set(known) == others else renormalised(known, others)
    agreed = {other: own_share * (1 - share) for other, own_share in own.items()} | {name: share}
    changed: dict[str, Any] = mixture.model_dump() | {"shares": agreed}
    return study.model_copy(update={"mixture": Given(**changed)})
