"""Diagnoses and searches as JSON that people and programs can read, and back."""

import json
from typing import Any

from pydantic import TypeAdapter

from fedopl.results.diagnosis import Diagnosis
from fedopl.results.mixture_search import MinimaxSearch, Search, SkewPath

# By the name that the file gives the kind of search.
_SEARCHES: dict[str, type[Search]] = {"path": SkewPath, "minimax": MinimaxSearch}


def diagnosis_json(diagnosis: Diagnosis) -> str:
    """diagnosis.json; numbers that are not finite are written as JavaScript does."""
    return _text(TypeAdapter(Diagnosis).dump_python(diagnosis))


def diagnosis_from(text: str) -> Diagnosis:
    """The diagnosis in a diagnosis.json."""
    return TypeAdapter(Diagnosis).validate_python(json.loads(text))


def search_json(search: Search) -> str:
    """mixture.json: the path or the ascent, and which of them it is."""
    (kind,) = (kind for kind, found in _SEARCHES.items() if isinstance(search, found))
    content = TypeAdapter(type(search)).dump_python(search)
    return _text({"kind": kind, **content})


def search_from(text: str) -> Search:
    """The search in a mixture.json."""
    content = json.loads(text)
    adapter: TypeAdapter[Search] = TypeAdapter(_SEARCHES[content.pop("kind")])
    return adapter.validate_python(content)


def _text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
