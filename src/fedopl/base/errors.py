"""Every error a user of fedopl can meet.

    FedoplError
    ├── DataError       a table or an array is not what was agreed
    ├── SchemaError     a schema contradicts itself
    ├── OptionError     a setting is not one of those offered
    ├── ModelError      a plugged-in model failed or answered nonsense
    ├── PolicyError     a saved policy cannot be loaded
    ├── StudyError      clients and study do not fit together
    ├── FederationError too few clients answered, or none that could be used
    ├── StorageError    a file could not be written, or is not what was written
    ├── WireError       bytes are not a message; raised and handled on the same side
    └── PrivacyError    something tried to carry rows away

A message says where the error is, what was expected, what came and what to do. It never quotes a
row.
"""

from typing import NoReturn, SupportsIndex


class FedoplError(Exception):
    """The root of every error that fedopl raises on purpose."""


class DataError(FedoplError):
    """A table or an array is not what was agreed."""


class SchemaError(FedoplError):
    """A schema contradicts itself or leaves out what it must say."""


class OptionError(FedoplError):
    """A setting is not one of those offered."""


class ModelError(FedoplError):
    """A plugged-in model failed, or returned something that cannot be used."""


class PolicyError(FedoplError):
    """A saved policy cannot be loaded."""


class StudyError(FedoplError):
    """The clients and the study do not fit together."""


class FederationError(FedoplError):
    """Too few clients answered, or none in a way that could be used."""


class StorageError(FedoplError):
    """A file could not be written, or is not what was written."""


class WireError(FedoplError):
    """Bytes are not a message of this study."""


class PrivacyError(FedoplError):
    """Something tried to take rows out of the client that holds them."""


class FedoplWarning(UserWarning):
    """A note to the user about something that fedopl did; not an error."""


def refuse_to_leave(holder: object, protocol: SupportsIndex) -> NoReturn:  # noqa: ARG001
    """Replace `__reduce_ex__` in classes that hold rows, so that they cannot be pickled."""
    raise PrivacyError(
        f"{type(holder).__name__} holds rows, which must stay where they are, so it cannot be "
        "pickled or copied. Send what the door allows instead, or read the data again where "
        "it is needed."
    )
