"""Diagnoses and searches as JSON that people and programs can read, and back."""

import json
from typing import Any

from pydantic import TypeAdapter

from fedopl.server.diagnosis.diagnose import Diagnosis
from fedopl.server.mixtures.minimax import Minimax
from fedopl.server.mixtures.mixture_paths import SkewPath
from fedopl.server.mixtures.weight_search import Search

_SEARCHES: dict[str, type[Search]] = {"path": SkewPath, "minimax": Minimax}


def diagnosis_json(diagnosis: Diagnosis) -> str:
    """All of it; numbers that are not finite are written as JavaScript does."""
    return _text(TypeAdapter(Diagnosis).dump_python(diagnosis))


def diagnosis_from(text: str) -> Diagnosis:
    """What was written."""
    return TypeAdapter(Diagnosis).validate_python(json.loads(text))


def search_json(search: Search) -> str:
    """The path or the ascent."""
    (kind,) = (kind for kind, found in _SEARCHES.items() if isinstance(search, found))
    content = TypeAdapter(type(search)).dump_python(search)
    return _text({"kind": kind, **content})


def search_from(text: str) -> Search:
    """What was written."""
    content = json.loads(text)
    adapter: TypeAdapter[Search] = TypeAdapter(_SEARCHES[content.pop("kind")])
    return adapter.validate_python(content)


def _text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
