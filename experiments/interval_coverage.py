"""How often 95 % intervals of cross-fitted values hold what the way of learning is worth.

    python experiments/interval_coverage.py [--worlds NAME ...] [--policy linear|tree]
        [--draws 40] [--first 1000]

Default studies learn in the worlds of `benchmarks/intervals.py`, of 500 rows a client or as many as
a world has. In these worlds it is known what every policy is worth, that of each fold, too. For
each interval it is printed in which share of the draws it holds the truth, and in which it lies
above it: world by world, then over all of them. docs/learning.md has what came out, of draws from
1000 on. `make laws` tries the same, with more draws, and studies whose clients are alike.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import fedopl
from fedopl.client import workspace
from fedopl.policies.linear import constant_policy
from fedopl.policies.policy import Policy
from fedopl.server import policy_comparison
from fedopl.simulation.named_worlds import SHAPED_WORLDS, shaped_world

N_ROWS, N_TEST = 500, 20_000  # of each client, and contexts to know the truth by
# What is learned without each fold: by all, by each client alone, and the arms that come out best.
LEARNED = {
    "together": (policy_comparison, "learn_by_fold"),
    "arms": (policy_comparison, "arms_by_fold"),
    "alone": (workspace, "local_policies_by_fold"),
}


class Drawn(NamedTuple):
    """What clients logged, and what policies are worth at each of them."""

    clients: Mapping[str, fedopl.LoggedData]
    worth: Callable[[Policy], Mapping[str, float]]
    done: Mapping[str, float]  # what was done is worth

    def mean(self, policies: Iterable[Policy], client: str | None = None) -> float:
        """What these policies are worth, on average over them, overall or at one client."""
        each = [self.worth(policy) for policy in policies]
        means = [own[client] if client else np.mean([*own.values()]) for own in each]
        return float(np.mean(means))


class Counted(NamedTuple):
    """In how many draws an interval holds the truth, and in how many it lies above it."""

    held: int = 0
    above: int = 0

    def plus(self, held: bool, above: bool) -> "Counted":
        """With one draw more."""
        return Counted(self.held + held, self.above + above)


def of_benchmarks(world: str, seed: int) -> Drawn:
    """Clients that differ, and chose arms by what they saw."""
    drawn = shaped_world(world, seed)
    worth = partial(drawn.values, n_test=N_TEST)
    return Drawn(drawn.all_logged(N_ROWS), worth, drawn.logging_values(N_TEST))


@contextmanager
def seen() -> Iterator[dict[str, list[Any]]]:
    """What was learned without each fold, by its name in `LEARNED`."""
    found: dict[str, list[Any]] = {name: [] for name in LEARNED}

    def spied(name: str, learn: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*given: Any) -> Any:
            found[name].append(learn(*given))
            return found[name][-1]

        return spy

    with ExitStack() as stack:
        for name, (module, function) in LEARNED.items():
            spy = spied(name, getattr(module, function))
            stack.enter_context(patch.object(module, function, spy))
        yield found


def counts(
    draws: Callable[[int], Drawn], seeds: Iterable[int], policy: Any, plan: Mapping[str, Any]
) -> dict[str, Counted]:
    """In how many draws intervals hold what they are of, and lie above it."""
    counted: dict[str, Counted] = {}
    for seed in seeds:
        drawn = draws(seed)
        with seen() as learned:
            run = fedopl.learn(drawn.clients, policy=policy, seed=seed, **plan)
        one, names, features = min(drawn.clients), run.study.actions, run.study.features
        found, alone = learned["together"][0], learned["alone"][0]
        arms = [constant_policy(arm, names, features) for arm in learned["arms"][-1]]
        assert isinstance(run.policy, Policy)  # noqa: S101  (no candidate of the study's own)
        done, value = float(np.mean([*drawn.done.values()])), drawn.mean(found)
        own = drawn.mean(found, one)
        values, gains = run.values, run.gains
        for name, told, truth in (
            ("value", values.of("learned"), value),
            ("value of the one delivered", values.of("learned"), drawn.mean([run.policy])),
            ("gain over what was done", gains.over("logging policy"), value - done),
            ("gain over the best arm", gains.over(run.valued_arm), value - drawn.mean(arms)),
            ("value at one client", values.of("learned", one), own),
            (
                "gain over its own there",
                gains.over("local policy", one),
                own - drawn.mean(alone, one),
            ),
        ):
            low, high = told.interval()
            so_far = counted.get(name, Counted())
            counted[name] = so_far.plus(low <= truth <= high, truth < low)
    return counted


def say(where: str, n_draws: int, counted: Mapping[str, Counted]) -> None:
    """Print both shares of every interval."""
    print(f"{where}, {n_draws} draws")
    for name, (held, above) in counted.items():
        print(f"  {name:<28} holds {held / n_draws:.3f}, claims too much {above / n_draws:.3f}")


def main() -> None:
    """Draw, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", nargs="+", choices=SHAPED_WORLDS, default=[*SHAPED_WORLDS])
    parser.add_argument("--policy", choices=("linear", "tree"), default="linear")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=1000)
    asked = parser.parse_args()
    seeds, total = range(asked.first, asked.first + asked.draws), dict[str, Counted]()
    for world in asked.worlds:
        counted = counts(partial(of_benchmarks, world), seeds, asked.policy, {})
        say(world, len(seeds), counted)
        for name, (held, above) in counted.items():
            so_far = total.get(name, Counted())
            total[name] = Counted(so_far.held + held, so_far.above + above)
    say("all of them", len(seeds) * len(asked.worlds), total)


if __name__ == "__main__":
    main()
