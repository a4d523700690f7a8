"""Every setting needed to repeat the run."""

import json
import platform
from importlib.metadata import version
from typing import Any

from fedopl.report.parts import Code, Folded, Part, Section, Table, Text
from fedopl.results.record import Record
from fedopl.study.study import Study

_PACKAGES = ("fedopl", "numpy", "scipy", "pydantic", "matplotlib")

_SINCE = (
    "That repeats the run as it began, with its first clients. The section Who is in lists "
    "who joined or left since, in order; fedopl join and fedopl leave repeat that."
)


def settings(record: Record) -> Section:
    """The section."""
    study = record.study
    applied = {**study.model_dump(mode="json"), "precision": study.linear.precision}
    secrets = ", the same secrets of the clients" if study.privacy else ""
    parts: tuple[Part, ...] = (
        Text(
            f"The study is all that was agreed on. With it, the same rows{secrets} and the "
            "same versions, a new run gives the same result to the last digit. Every message "
            "carried its hash, so no client answered for another study."
        ),
        *_start(record),
        _versions(record),
        Folded(summary="Every setting", parts=(_table(applied),)),
        Folded(
            summary="The study as a file",
            parts=(
                Text(f"Save this as study.json; it has the hash above.{_unread(study)}"),
                Code(text=study.model_dump_json(indent=1), label="The study as JSON"),
            ),
        ),
    )
    return Section(name="settings", title="How to repeat it", parts=parts)


def _unread(study: Study) -> str:
    """A sentence on the hashed form's `precision` where no policy of this kind reads it."""
    applied, said = study.linear.precision, study.model_dump(mode="json")["precision"]
    if applied == said:
        return ""
    return (
        f" Its precision, {said}, is not read for this kind of policy: linear policies of this "
        f"study are solved with {applied}."
    )


def _start(record: Record) -> tuple[Part, ...]:
    since = (Text(_SINCE),) if record.membership else ()
    if record.study.table is None:
        by_learn = "The run was started from Python, by fedopl.learn with the settings below."
        return (Text(by_learn), *since)
    return (
        Text("With the study's file and a folder for each client, this starts it:"),
        Code(text="fedopl run study.toml --clients clients", label="The command"),
        *since,
    )


def _versions(record: Record) -> Table:
    study, agreed = record.study, record.study.before_screening
    what = f"With the {'ranges' if study.privacy else 'pairs'} that were found"
    found = () if study == agreed else ((what, study.digest.hex()),)
    return Table(
        caption="The study's hash, and the versions this report was written with",
        headers=("What", "Which"),
        rows=(
            ("Hash of the study", agreed.digest.hex()),
            *found,
            ("Seed", str(record.study.seed)),
            ("Python", platform.python_version()),
            *((package, version(package)) for package in _PACKAGES),
        ),
        text_columns=(1,),
    )


def _table(content: dict[str, Any]) -> Table:
    return Table(
        caption="Every setting of the study",
        headers=("Setting", "Value"),
        rows=tuple(_flat(content)),
        text_columns=(1,),
    )


def _flat(content: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by their dotted names."""
    rows: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for place, entry in enumerate(value, start=1):
                rows += _flat(entry, f"{prefix}{name}.{place}.")
        elif isinstance(value, list):
            rows.append((f"{prefix}{name}", ", ".join(map(str, value)) or "none"))
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            rows.append((f"{prefix}{name}", text))
    return rows
