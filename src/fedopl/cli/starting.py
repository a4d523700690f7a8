"""Example files to start from."""

from importlib.resources import files
from pathlib import Path

from fedopl.base.errors import StorageError
from fedopl.base.files import write_atomically

PLACES = {"study.toml": "study.toml", "client.toml": "clients/north/client.toml"}


def write_examples(folder: Path) -> list[Path]:
    """Write both commented examples; nothing that is there is written over."""
    paths = {name: folder / place for name, place in PLACES.items()}
    taken = [str(path) for path in paths.values() if path.exists()]
    if taken:
        raise StorageError(f"{', '.join(taken)}: is there already; name an empty folder")
    for name, path in paths.items():
        # A client's file is where its secret goes.
        mode = 0o600 if name == "client.toml" else 0o666
        write_atomically(path, template(name).encode(), mode)
    return list(paths.values())


def template(name: str) -> str:
    """One of the commented examples."""
    return (files("fedopl.cli") / "templates" / name).read_text(encoding="utf-8")
