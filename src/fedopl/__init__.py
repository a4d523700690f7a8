"""Federated offline policy learning: one good decision policy from data nobody may share.

    data = fedopl.read_logged("north.csv", schema)
    scores = fedopl.aipw_scores(data, fedopl.cross_fit(data))
    fedopl.estimate_value(scores, "treat")

Names are loaded when they are first used, so that importing fedopl stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedopl.client.logged_data import LoggedData
    from fedopl.client.nuisances import Nuisances, cross_fit
    from fedopl.client.overlap import Overlap, overlap
    from fedopl.client.read import read_logged
    from fedopl.client.scores import (
        Scores,
        aipw_scores,
        dm_scores,
        ipw_scores,
        self_normalised_aipw_scores,
        self_normalised_ipw_scores,
    )
    from fedopl.client.values import estimate_value
    from fedopl.errors import (
        DataError,
        FedoplError,
        FedoplWarning,
        ModelError,
        OptionError,
        PrivacyError,
        SchemaError,
    )
    from fedopl.estimates import Estimate
    from fedopl.schema import Schema

__version__ = "0.1.0"

_HOMES = {
    "fedopl.client.logged_data": ("LoggedData",),
    "fedopl.client.nuisances": ("Nuisances", "cross_fit"),
    "fedopl.client.overlap": ("Overlap", "overlap"),
    "fedopl.client.read": ("read_logged",),
    "fedopl.client.scores": (
        "Scores",
        "aipw_scores",
        "dm_scores",
        "ipw_scores",
        "self_normalised_aipw_scores",
        "self_normalised_ipw_scores",
    ),
    "fedopl.client.values": ("estimate_value",),
    "fedopl.errors": (
        "DataError",
        "FedoplError",
        "FedoplWarning",
        "ModelError",
        "OptionError",
        "PrivacyError",
        "SchemaError",
    ),
    "fedopl.estimates": ("Estimate",),
    "fedopl.schema": ("Schema",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DataError",
    "Estimate",
    "FedoplError",
    "FedoplWarning",
    "LoggedData",
    "ModelError",
    "Nuisances",
    "OptionError",
    "Overlap",
    "PrivacyError",
    "Schema",
    "SchemaError",
    "Scores",
    "aipw_scores",
    "cross_fit",
    "dm_scores",
    "estimate_value",
    "ipw_scores",
    "overlap",
    "read_logged",
    "self_normalised_aipw_scores",
    "self_normalised_ipw_scores",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedopl' has no attribute '{name}'")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
