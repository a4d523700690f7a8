"""Repeated splits: divides a study with several splits into one study per split."""

import hashlib

from fedopl.study.study import Study


def split_studies(study: Study) -> tuple[Study, ...]:
    """One study per split; the first is the study without further splits.

    Each study has its own seed and name, hence its own hash. For a client they are separate
    studies: its secret splits its rows differently for each, and its ledger counts each. If the
    number of splits grows, new splits come after the existing ones.
    """
    plan = study.evaluation
    if plan.splits == 1:
        return (study,)
    first = study.model_copy(update={"evaluation": plan.model_copy(update={"splits": 1})})
    return (first, *(_again(first, place) for place in range(2, plan.splits + 1)))


def _again(first: Study, place: int) -> Study:
    """The study under another split, without descriptions, which belong to the first policy alone.

    `place` counts from one.
    """
    digest = hashlib.sha256(f"{first.seed}\x1fsplit {place}".encode()).digest()
    # Not consecutive seeds: users who try several seeds get no split twice.
    seed = int.from_bytes(digest[:6], "little")
    changes = {
        "name": f"{first.name}, split {place}",
        "seed": seed,
        "evaluation": first.evaluation.model_copy(update={"describe": False}),
    }
    return first.model_copy(update=changes)
