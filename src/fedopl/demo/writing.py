"""Writes an example, given its name."""

from collections.abc import Callable
from pathlib import Path

from fedopl.demo.example import Example
from fedopl.demo.hospitals import hospitals, private_hospitals, three_hospitals
from fedopl.demo.rand_hie import rand_hie

EXAMPLES: dict[str, Callable[[], Example]] = {
    "hospitals": hospitals,
    "private-hospitals": private_hospitals,
    "three-hospitals": three_hospitals,
    "rand-hie": rand_hie,
}


def write_demo(folder: Path, name: str) -> Path:
    """Write the example into the folder; return the path of its study file."""
    return EXAMPLES[name]().write(folder)
