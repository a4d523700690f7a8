"""Writing an example by its name."""

from collections.abc import Callable
from pathlib import Path

from fedopl.demo.example import Example
from fedopl.demo.hospitals import hospitals
from fedopl.demo.rand_hie import rand_hie

EXAMPLES: dict[str, Callable[[], Example]] = {"hospitals": hospitals, "rand-hie": rand_hie}


def write_demo(folder: Path, name: str) -> Path:
    """Write the example into the folder; its study file comes back."""
    return EXAMPLES[name]().write(folder)
