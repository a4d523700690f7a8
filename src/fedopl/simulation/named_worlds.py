"""Fourteen worlds to compare ways of learning in: what is right in one is wrong in another.

    world = shaped_world("smooth", seed=3)
    run = fedopl.learn(world.all_logged(2_000))
    world.regret(run.policy)

What is common to all actions drives both rewards and logging, so means of what was logged are
confounded; and logging is not logistic in x. A seed draws the slopes, frequencies and thresholds,
too: no learner can be tuned to them.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.seeds import generator_for
from fedopl.simulation.shaped_worlds import (
    N_NUMBERS,
    Shape,
    ShapedWorld,
    Site,
    linear,
    smooth,
    steps,
    triples,
    xor,
)

LEAST_PROPENSITY = 0.05  # less where there are more than four actions

DrawShape = Callable[[np.random.Generator, int], Shape]


def clients_alike(
    draw: DrawShape, seed: int, n_clients: int = 3, n_actions: int = 3
) -> ShapedWorld:
    """Clients with different contexts and logging habits, and the same rewards."""
    # One shape more than there are actions: it is common to all of them, and confounds.
    parts = draw(generator_for(seed, purpose="rewards"), n_actions + 1)
    width = len(str(n_clients))
    names = [f"client {number + 1:0{width}}" for number in range(n_clients)]
    return ShapedWorld(
        sites={name: _site(name, parts, seed, n_actions) for name in names},
        n_actions=n_actions,
        seed=seed,
        least_propensity=min(LEAST_PROPENSITY, 0.2 / n_actions),
    )


def _site(name: str, parts: Shape, seed: int, n_actions: int) -> Site:
    rng = generator_for(seed, client=name, purpose="site")
    phases = rng.uniform(0, 2 * np.pi, n_actions)
    inclined = np.linspace(-1, 1, n_actions)

    def rewards(contexts: FloatArray) -> FloatArray:
        found = parts(contexts)
        return found[:, :-1] + found[:, -1:]

    def leaning(contexts: FloatArray) -> FloatArray:
        found = parts(contexts)
        waves = np.sin(1.5 * contexts[:, :1] + phases) + np.cos(1.5 * contexts[:, 1:2] - phases)
        drawn: FloatArray = 0.5 * found[:, :-1] + inclined * np.tanh(found[:, -1:]) + 0.7 * waves
        return drawn

    return Site(
        context_mean=rng.normal(0, 0.5, N_NUMBERS),
        share_of_ones=float(rng.uniform(0.3, 0.7)),
        rewards=rewards,
        leaning=leaning,
    )


def _of_shape(draw: DrawShape, **sizes: int) -> Callable[[int], ShapedWorld]:
    return lambda seed: clients_alike(draw, seed, **sizes)


def changed(world: ShapedWorld, client: str, **what: object) -> ShapedWorld:
    """The world with some parts of this client replaced by `what`."""
    own = replace(world.sites[client], **what)  # type: ignore[arg-type]
    return replace(world, sites={**world.sites, client: own})


def _plus(first: Shape, second: Shape) -> Shape:
    return lambda contexts: first(contexts) + second(contexts)


def _clients_differ(seed: int) -> ShapedWorld:
    """Smooth; each client adds a slope and a wave of its own to the common rewards."""
    world = clients_alike(smooth, seed)
    for name in world.clients:
        rng = generator_for(seed, client=name, purpose="own rewards")
        own = _plus(linear(rng, world.n_actions, size=0.3), smooth(rng, world.n_actions, size=0.5))
        rewards = _plus(world.sites[name].rewards, own)
        world = changed(world, name, rewards=rewards)
    return world


def _noisy(seed: int) -> ShapedWorld:
    """Linear; the rewards of the first client are ten times as noisy."""
    world = clients_alike(linear, seed)
    return changed(world, world.clients[0], reward_sd=10.0)


def _noisy_and_different(seed: int) -> ShapedWorld:
    """Linear; the first client is noisy, and its slopes differ."""
    own = linear(generator_for(seed, purpose="other slopes"), 3)
    world = _noisy(seed)
    return changed(world, world.clients[0], rewards=own)


def _larger_effects(seed: int) -> ShapedWorld:
    """Linear; the first client's slopes differ, and are four times as large."""
    own = linear(generator_for(seed, purpose="other slopes"), 3, size=2.0)
    world = clients_alike(linear, seed)
    return changed(world, world.clients[0], rewards=own)


def _few_rows(seed: int) -> ShapedWorld:
    """Linear; ten clients of sixty rows."""
    return replace(clients_alike(linear, seed, n_clients=10), rows=60)


def _heavy_tails(seed: int) -> ShapedWorld:
    """Linear; noise has Student's t with 1.6 degrees of freedom, so no variance."""
    world = clients_alike(linear, seed)
    for name in world.clients:
        world = changed(world, name, heavy_tail=1.6)
    return world


def _poor_overlap(seed: int) -> ShapedWorld:
    """Two actions; the second is logged once in a hundred rows if the first number is above 0.

    There it is worth 1.5 less, the same, or 1.5 more, depending on the seed.
    """
    extra = (-1.5, 0.0, 1.5)[seed % 3]
    world = replace(clients_alike(linear, seed, n_actions=2), least_propensity=0.0)
    for name, site in world.sites.items():

        def rewards(contexts: FloatArray, usual: Shape = site.rewards) -> FloatArray:
            beyond = contexts[:, 0] > 0
            return usual(contexts) + np.column_stack([0 * beyond, extra * beyond])

        def leaning(contexts: FloatArray) -> FloatArray:
            share = np.where(contexts[:, 0] > 0, 0.01, 0.4 + 0.2 * np.sin(contexts[:, 1]))
            chances: FloatArray = np.column_stack([1 - share, share])
            return np.log(chances)

        world = changed(world, name, rewards=rewards, leaning=leaning)
    return world


def _both_nonlinear(seed: int) -> ShapedWorld:
    """Smooth; five clients of 400 rows; logging follows twice the part common to all actions."""
    world = replace(clients_alike(smooth, seed, n_clients=5), rows=400)
    for name, site in world.sites.items():

        def leaning(contexts: FloatArray, site: Site = site) -> FloatArray:
            common = site.rewards(contexts).mean(axis=1, keepdims=True)
            drawn: FloatArray = 2 * np.tanh(common) * np.array([-1, 0, 1])
            return site.leaning(contexts) + drawn

        world = changed(world, name, leaning=leaning)
    return world


SHAPED_WORLDS: dict[str, Callable[[int], ShapedWorld]] = {
    "linear": _of_shape(linear),
    "smooth": _of_shape(smooth),
    "steps": _of_shape(steps),
    "deep": _of_shape(triples),
    "clients-differ": _clients_differ,
    "xor": _of_shape(xor),
    "noisy-client": _noisy,
    "noisy-and-different": _noisy_and_different,
    "larger-effects": _larger_effects,
    "few-rows": _few_rows,
    "ten-actions": _of_shape(linear, n_actions=10),
    "heavy-tails": _heavy_tails,
    "poor-overlap": _poor_overlap,
    "both-nonlinear": _both_nonlinear,
}


def shaped_world(name: str, seed: int = 0) -> ShapedWorld:
    """One of `SHAPED_WORLDS`, with slopes and thresholds drawn by the seed."""
    if name not in SHAPED_WORLDS:
        raise OptionError(f"world: expected one of {quoted(tuple(SHAPED_WORLDS))}, came '{name}'")
    return SHAPED_WORLDS[name](seed)


N_CLIENTS, N_ACTIONS = 8, 3  # of the odd world


def odd_world(seed: int) -> ShapedWorld:
    """Linear; of eight clients, the first alone adds slopes of its own to the common ones."""
    world = clients_alike(linear, seed, N_CLIENTS, N_ACTIONS)
    return with_own_slopes(world, world.clients[0], 1.0)


def with_own_slopes(world: ShapedWorld, client: str, far: float) -> ShapedWorld:
    """The world in which this client adds slopes of its own, `far` times as large as the common."""
    rng = generator_for(world.seed, client=client, purpose="own slopes")
    own, usual = linear(rng, N_ACTIONS, size=0.5 * far), world.sites[client].rewards
    return changed(world, client, rewards=_plus(usual, own))
