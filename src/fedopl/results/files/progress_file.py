"""The exchanges of a run so far, as a file, for whoever watches it from another process."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedopl.results.round import Round

_ROUND = TypeAdapter(Round)


@dataclass(frozen=True)
class ProgressFile:
    """Lines as in `rounds.jsonl`; an exchange that came to more has a further line."""

    path: Path

    def clear(self) -> None:
        """Forget an earlier run."""
        self.path.unlink(missing_ok=True)

    def tell(self, latest: Round) -> None:
        """Append an exchange; a run does not fail because nobody can watch it."""
        line = json.dumps(asdict(latest)) + "\n"
        with suppress(OSError), self.path.open("ab", buffering=0) as file:
            file.write(line.encode())

    def since(self, position: int) -> tuple[Iterable[Round], int]:
        """The exchanges from this byte on, and the byte after them."""
        try:
            with self.path.open("rb") as file:
                file.seek(position)
                content = file.read()
        except OSError:  # not begun yet, or over
            return (), position
        *lines, unfinished = content.split(b"\n")
        return map(_ROUND.validate_json, lines), position + len(content) - len(unfinished)
