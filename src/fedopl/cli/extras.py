"""Checks that the optional package of a verb is installed, before the verb starts."""

from importlib.util import find_spec

from fedopl.base.errors import OptionError


def need(package: str, extra: str) -> None:
    """Refuse in words where the package is not installed."""
    if find_spec(package) is None:
        raise OptionError(f"{package} is not installed; pip install 'fedopl[{extra}]'")
