"""The ledgers of many clients in one process; what entries have in common is stored once."""

import struct
from collections.abc import Iterator
from dataclasses import fields, replace
from operator import attrgetter

from fedopl.base.timestamps import milliseconds_of, timestamp
from fedopl.client.disclosure.ledger import Entry, Ledger

# The form of an entry, its time in milliseconds, and the hash of its answer.
_HEAD = struct.Struct("<Iq32s")
_OWN = {"when", "sha256", "norms", "shapes"}  # fields that entries of a form do not simply share
_shared = attrgetter(*(field.name for field in fields(Entry) if field.name not in _OWN))


class EntryForms:
    """What entries of all clients have in common: everything except time, norms and hashes."""

    def __init__(self) -> None:
        self._forms: list[tuple[Entry, struct.Struct]] = []  # each, and how norms are packed
        self._places: dict[tuple[object, ...], int] = {}

    def packed(self, entry: Entry) -> bytes:
        """The entry, packed into few bytes."""
        shapes = tuple((name, *shape) for name, shape in entry.shapes.items())
        key = (*_shared(entry), shapes, tuple(entry.norms))
        if key not in self._places:
            shared = replace(entry, when="", sha256="", norms=dict.fromkeys(entry.norms, 0.0))
            self._places[key] = len(self._forms)
            self._forms.append((shared, struct.Struct(f"<{len(entry.norms)}d")))
        place = self._places[key]
        head = _HEAD.pack(place, milliseconds_of(entry.when), bytes.fromhex(entry.sha256))
        return head + self._forms[place][1].pack(*entry.norms.values())

    def unpacked(self, content: bytes, position: int = 0) -> Iterator[Entry]:
        """All entries from here on."""
        while position < len(content):
            place, when, sha256 = _HEAD.unpack_from(content, position)
            position += _HEAD.size
            form, numbers = self._forms[place]
            norms = numbers.unpack_from(content, position)
            position += numbers.size
            entry = object.__new__(Entry)  # `replace` takes several times as long
            vars(entry).update(
                vars(form),
                when=timestamp(when),
                sha256=sha256.hex(),
                norms=dict(zip(form.norms, norms, strict=True)),
                shapes={name: list(shape) for name, shape in form.shapes.items()},
            )
            yield entry


class PackedLedger(Ledger):
    """One client's ledger, which lives as long as the process."""

    __slots__ = ("_content", "_forms")

    def __init__(self, forms: EntryForms) -> None:
        self._forms, self._content = forms, b""

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        self._content += self._forms.packed(entry)

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries from this byte on, and the byte after them."""
        return list(self._forms.unpacked(self._content, position)), len(self._content)


class PackedLedgers(dict[str, PackedLedger]):
    """The ledgers of all clients of a run, by name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        forms = EntryForms()
        super().__init__((name, PackedLedger(forms)) for name in names)
