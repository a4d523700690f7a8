"""An attack on differential privacy, and whether it tells more than was promised.

    python experiments/privacy_audit.py [--pairs 1000] [--epsilon 4]

The attacker is the server, knows every row but one, that one, too, every setting, the mechanism,
and even which rows are held out, and only not whether the row is in the data or nobody's. It asks
the questions in which that row counts most, all that a study allows, through the client's own
door, and guesses by the likelihood of the answers. Every pair has a secret of its own, so noise is
as in a new run. The row is the worst: every bound is reached.

From how often it guesses wrong follow, with 95 % confidence (Clopper & Pearson), a lower bound on
μ, the promise as Gaussian differential privacy, and the ε that belongs to it; and a lower bound on
ε from wrong guesses alone, (ε, δ) and nothing else, which a thousand pairs leave low. A bound above
the promise means that noise is broken; one far below it, that the attack shows little.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtri

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.door import Door
from fedopl.client.private.private_workspace import Noise, PrivateWorkspace
from fedopl.messages import codec
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.message import Message, Query
from fedopl.messages.private.noised_scores import NoisedValues, ValuePrivately
from fedopl.messages.private.noised_sums import NoisedSums, ResidualSums, SumPrivately, SumResiduals
from fedopl.policies.kinds import packed
from fedopl.privacy.accountant import epsilon_for
from fedopl.privacy.exact_noise import FINE
from fedopl.study.private.private_setting import FIRST_SHARE, PrivateSetting
from fedopl.study.study import Study

N_ROWS, TARGET, OVERLAP = 40, 0, 0.5
ACTIONS, FEATURES = ("a", "b"), ("x",)


def a_study(epsilon: float) -> Study:
    """Two arms, one feature, half of the rows held out."""
    plan = fedopl.PrivacyPlan(epsilon=epsilon, outcome=(-3, 3), ranges={"x": (-2, 2)}, steps=2)
    return Study(
        actions=ACTIONS,
        features=FEATURES,
        privacy=plan,
        declared=fedopl.Declared(overlap=OVERLAP),
        evaluation=fedopl.EvaluationPlan(share=0.5),
    )


def rows() -> fedopl.LoggedData:
    """A few rows, of which the target reaches all bounds."""
    rng = np.random.default_rng(0)
    contexts, outcomes = rng.normal(size=(N_ROWS, 1)), rng.normal(size=N_ROWS)
    contexts[TARGET], outcomes[TARGET] = 1.0, 3.0
    return fedopl.LoggedData(
        contexts,
        np.arange(N_ROWS) % 2,
        outcomes,
        np.full(N_ROWS, OVERLAP),
        action_names=ACTIONS,
        feature_names=FEATURES,
    )


def questions(study: Study) -> list[Query[Any]]:
    """All that a study allows, asked so that the target counts most."""
    low = np.full((2, 2), [0.0, -100.0])  # models far below what came
    everybody_a = np.array([[0.0, 1.0], [0.0, 0.0]])
    steps = study.privacy.steps if study.privacy else 0
    policies: dict[str, Any] = packed([], study)
    policies["linear"] = np.stack([everybody_a, -everybody_a])
    return [
        SumPrivately(),
        *(SumResiduals(number=step, n_terms=1, parameters=low) for step in range(steps)),
        ValuePrivately(models=low, **policies),
    ]


def a_door(study: Study, secret: str, *, with_target: bool) -> Door:
    """The client's door; a target that is nobody's adds nothing."""
    limits = Limits.open().model_copy(update={"epsilon": 100.0})
    door = Door("client", rows(), study, secret=secret, limits=limits)
    if not with_target:
        used = np.ones(N_ROWS, bool)
        used[TARGET] = False
        space_of(door).rows.__dict__["_is_used"] = used
    return door


def space_of(door: Door) -> PrivateWorkspace:
    """What is behind the door."""
    if not isinstance(door._space, PrivateWorkspace):
        raise TypeError("the study is not private")
    return door._space


def answers(door: Door, asked: list[Query[Any]]) -> list[Message]:
    """What leaves by the door."""
    decoder, digest = decoder_of(door.study), door.study.digest
    return [
        decoder.decode(door.handle(codec.encode(replace(query, study=digest)))) for query in asked
    ]


def standardised(found: list[Message], study: Study) -> np.ndarray:
    """All numbers of answers, each with independent noise of variance one.

    A number beside the diagonal of a symmetric matrix has half the variance, and comes twice.
    """
    noise, parts = PrivateSetting(study).deviation, []
    for answer in found:
        if isinstance(answer, NoisedSums):
            parts += [answer.squares / noise("squares"), answer.products / noise("products")]
        elif isinstance(answer, ResidualSums):
            parts += [answer.residuals / noise("step")]
        elif isinstance(answer, NoisedValues):
            parts += [answer.sums / noise("values"), answer.squares / noise("value squares")]
        else:
            raise TypeError(f"no answer of a private study: {answer}")
    return np.concatenate([np.asarray(part).ravel() for part in parts])


@contextmanager
def no_noise() -> Iterator[None]:
    """While the attacker computes for itself, from rows that it knows."""
    kept = Noise.added
    Noise.added = lambda _self, sums, *_: sums / FINE
    try:
        yield
    finally:
        Noise.added = kept


class Seen(NamedTuple):
    """What one run tells of the target."""

    points: float  # to its being there: on average 0, or `reach` if it is; its deviation is 1
    reach: float  # μ, if noise is what it should be


def attacked(study: Study, door: Door, what: str) -> Seen:
    """What the attacker sees in one run of the study."""
    first, *steps, values = questions(study)
    (sums,) = answers(door, [first])
    asked = {"first sums": [], "learning": steps, "values": [values]}[what]
    released = [*([] if what == "values" else [sums]), *answers(door, asked)]
    expected = []
    for there in (False, True):
        own = a_door(study, space_of(door).draws.secret, with_target=there)
        if what == "values":
            space_of(own).__dict__["first_sums"] = sums  # the client's own policy follows from them
        with no_noise():
            known = answers(own, asked if what == "values" else [first, *asked])
        expected.append(standardised(known, study))
    moved = expected[1] - expected[0]
    reach = float(np.linalg.norm(moved))
    return Seen(float((standardised(released, study) - expected[0]) @ moved) / reach, reach)


def seen(study: Study, n_runs: int, what: str, *, with_target: bool) -> list[Seen]:
    """So many runs in which the target is on the side that this is about."""
    found: list[Seen] = []
    for place in count():
        secret = f"{what}, run {place}, {with_target}".ljust(32)
        door = a_door(study, secret, with_target=with_target)
        if bool(space_of(door).rows.is_held_out[TARGET]) == (what == "values"):
            found.append(attacked(study, door, what))
        if len(found) == n_runs:
            return found
    raise AssertionError("counting never ends")


class Audit(NamedTuple):
    """What guesses say of the promise; lower bounds hold with 95 % confidence."""

    promised_mu: float
    largest_mu: float  # that this row and these questions can show
    mu: float
    epsilon: float  # that belongs to μ
    epsilon_alone: float  # by (ε, δ) and nothing else

    @property
    def is_kept(self) -> bool:
        """Whether nothing speaks against the promise."""
        return self.mu <= self.promised_mu


def audited(study: Study, n_pairs: int, what: str) -> Audit:
    """The attack on so many pairs of runs, each run with a secret of its own."""
    plan = study.privacy
    if plan is None:
        raise TypeError("the study is not private")
    without, with_it = (seen(study, n_pairs, what, with_target=there) for there in (False, True))
    promised = plan.mu * (np.sqrt(FIRST_SHARE) if what == "first sums" else 1.0)
    # Cuts follow from what is promised, not from what was seen: half way, and further out.
    false, missed = _wrong(without, with_it, promised / 2)
    mu = max(0.0, float(-ndtri(false) - ndtri(missed)))
    false, missed = _wrong(without, with_it, 1.0 + promised / 2)
    alone = max(0.0, float(np.log(max(1 - missed - plan.delta, 1e-9) / false)))
    epsilon = epsilon_for(mu, plan.delta) if mu else 0.0
    return Audit(float(promised), with_it[0].reach, mu, epsilon, alone)


def _wrong(without: list[Seen], with_it: list[Seen], cut: float) -> tuple[float, float]:
    """Upper bounds on how often the target is seen and not there, and there and not seen."""
    false = sum(one.points > cut for one in without)
    missed = sum(one.points <= cut for one in with_it)
    return _at_most(false, len(without)), _at_most(missed, len(with_it))


def _at_most(found: int, of: int) -> float:
    """Clopper & Pearson's bound; two of them hold together with 95 % confidence."""
    return float(betaincinv(found + 1, of - found, 0.975)) if found < of else 1.0


def main() -> None:
    """Print what each kind of release tells."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=4.0)
    given = parser.parse_args()
    study = a_study(given.epsilon)
    print("| answers | promised: μ | ε | at least: μ | ε | ε by guesses alone |")
    print("|---|---:|---:|---:|---:|---:|")
    for what in ("first sums", "learning", "values"):
        found = audited(study, given.pairs, what)
        promised = epsilon_for(found.promised_mu, study.privacy.delta if study.privacy else 0)
        print(
            f"| {what} | {found.promised_mu:.3f} | {promised:.2f} | {found.mu:.3f} "
            f"| {found.epsilon:.2f} | {found.epsilon_alone:.2f} |",
            flush=True,
        )
        if not found.is_kept:
            raise SystemExit(f"{what}: the promise is broken")


if __name__ == "__main__":
    main()
