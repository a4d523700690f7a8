"""Repeated splits: divides a study with several splits into one study per split.

A policy that is learned once more from all rows, after it was valued, takes a last study, which
holds none out.
"""

import hashlib
from typing import Any

from fedopl.study.plans import HELD_OUT
from fedopl.study.study import Study


def split_studies(study: Study) -> tuple[Study, ...]:
    """One study per split; the first is the study without further splits.

    Each study has its own seed and name, hence its own hash. For a client they are separate
    studies: its secret splits its rows differently for each, and its ledger counts each. If the
    number of splits grows, new splits come after the existing ones.
    """
    plan = study.evaluation
    if plan.splits == 1 and not plan.refits:
        return (study,)
    kind = HELD_OUT if plan.refits else plan.kind
    first = _evaluated(study, study.name, kind=kind, splits=1)
    others = [_again(first, place) for place in range(2, plan.splits + 1)]
    last = _evaluated(first, f"{first.name}, all rows", share=0.0)
    return (first, *others, *([last] if plan.refits else []))


def _evaluated(study: Study, name: str, **said: Any) -> Study:
    """The study under another name, and evaluated differently."""
    return study.model_copy(
        update={"name": name, "evaluation": study.evaluation.model_copy(update=said)}
    )


def _again(first: Study, place: int) -> Study:
    """The study under another split, without descriptions, which belong to the first policy alone.

    `place` counts from one.
    """
    digest = hashlib.sha256(f"{first.seed}\x1fsplit {place}".encode()).digest()
    # Not consecutive seeds: users who try several seeds get no split twice.
    seed = int.from_bytes(digest[:6], "little")
    return _evaluated(first, f"{first.name}, split {place}", describe=False).model_copy(
        update={"seed": seed}
    )
