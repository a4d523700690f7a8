"""Repeated splits: the studies that a study with several splits of the rows is made of."""

import hashlib

from fedopl.study.study import Study


def split_studies(study: Study) -> tuple[Study, ...]:
    """A study for each split, which has one; the first is the study as it is without others.

    Every one has a seed and a name of its own, hence a hash of its own: to a client they are as
    many studies. Its secret splits its rows in another way for each, and its ledger counts them.
    More splits come after those that were there already.
    """
    plan = study.evaluation
    if plan.splits == 1:
        return (study,)
    first = study.model_copy(update={"evaluation": plan.model_copy(update={"splits": 1})})
    return (first, *(_again(first, place) for place in range(2, plan.splits + 1)))


def _again(first: Study, place: int) -> Study:
    """The same under another split, but for descriptions, which are of the policy in hand alone.

    `place` counts from one.
    """
    digest = hashlib.sha256(f"{first.seed}\x1fsplit {place}".encode()).digest()
    # Not the seeds that follow: somebody who tries several shares no split between them.
    seed = int.from_bytes(digest[:6], "little")
    changes = {
        "name": f"{first.name}, split {place}",
        "seed": seed,
        "evaluation": first.evaluation.model_copy(update={"describe": False}),
    }
    return first.model_copy(update=changes)
