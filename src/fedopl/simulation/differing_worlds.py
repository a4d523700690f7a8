"""Eight clients that are alike, differ by as much as is said, or of which one is odd.

world = differing_world("linear", seed=3, far=0.25)
run = fedopl.learn(world.all_known(400), personal="ridge")
"""

from collections.abc import Callable

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for
from fedopl.simulation.named_worlds import changed, clients_alike
from fedopl.simulation.reward_shapes import Shape, linear, smooth
from fedopl.simulation.shaped_worlds import ShapedWorld

N_CLIENTS, N_ACTIONS = 8, 3
SHAPES = {"linear": linear, "smooth": smooth}


def differing_world(shape: str, seed: int, far: float) -> ShapedWorld:
    """A world in which each client adds its own slopes to common rewards, `far` times as large."""
    world = clients_alike(SHAPES[shape], seed, N_CLIENTS, N_ACTIONS)
    for name in world.clients:
        world = _adding(world, name, far)
    return world


def odd_world(seed: int, far: float = 1.0) -> ShapedWorld:
    """Linear; only the first client adds slopes of its own to the common ones."""
    world = clients_alike(linear, seed, N_CLIENTS, N_ACTIONS)
    return _adding(world, world.clients[0], far)


def saturating_world(seed: int, most: float = 0.5) -> ShapedWorld:
    """Linear; at the first client, rewards rise with the common index up to `most`, then fall."""
    world = clients_alike(linear, seed, N_CLIENTS, N_ACTIONS)
    first = world.clients[0]
    usual = world.sites[first].rewards
    return changed(world, first, rewards=_bent(usual, most))


def _adding(world: ShapedWorld, client: str, far: float) -> ShapedWorld:
    rng = generator_for(world.seed, client=client, purpose="own slopes")
    own, usual = linear(rng, N_ACTIONS, size=0.5 * far), world.sites[client].rewards
    return changed(world, client, rewards=_plus(usual, own))


def _plus(first: Shape, second: Shape) -> Shape:
    return lambda contexts: first(contexts) + second(contexts)


def _bent(usual: Shape, most: float) -> Callable[[FloatArray], FloatArray]:
    """Like the paper's k·sin(·/k) for the client that differs."""
    return lambda contexts: most * np.sin(usual(contexts) / most)
