"""`export_rule`: writes a policy as a file for another program, after a trial."""

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedopl.base.errors import OptionError, PolicyError
from fedopl.base.files import write_atomically
from fedopl.base.labels import quoted
from fedopl.policies.export.excel_workbook import excel_workbook
from fedopl.policies.export.onnx_model import onnx_model
from fedopl.policies.export.python_module import python_module
from fedopl.policies.export.sql_query import sql_query
from fedopl.policies.export.target import Inputs, WrittenRule
from fedopl.policies.export.tried_on_arrays import Decide, share_that_differs

# If decisions differ in more than this share of made-up rows, rounding is not the reason.
MOST_DIFFERENT = 0.01


class Language(NamedTuple):
    """How a policy is written in one language, and the file endings of that language."""

    ending: str
    write: Callable[[WrittenRule, Inputs], bytes]


LANGUAGES = {
    "sql": Language(".sql", sql_query),
    "python": Language(".py", python_module),
    "excel": Language(".xlsx", excel_workbook),
    "onnx": Language(".onnx", onnx_model),
}


def export_rule(
    rule: WrittenRule, inputs: Inputs, decide: Decide, path: Path, to: str | None
) -> Path:
    """Write the rule in a language, whole or not at all, if it decides as the policy does."""
    language = _language(path, to)
    _check_names(inputs)
    _check_decisions(rule, inputs, decide)
    if path.is_dir():
        raise OptionError(f"{path}: is a folder; name a file to write")
    write_atomically(path, language.write(rule, inputs))
    return path


def _language(path: Path, to: str | None) -> Language:
    if to is None:
        endings = {language.ending: name for name, language in LANGUAGES.items()}
        to = endings.get(path.suffix.lower())
        if to is None:
            raise OptionError(
                f"{path}: expected a name that ends in {', '.join(endings)}, came '{path.name}'; "
                f"or say to=, one of {quoted(list(LANGUAGES))}"
            )
    if to not in LANGUAGES:
        raise OptionError(f"to: expected one of {quoted(list(LANGUAGES))}, came {to!r}")
    return LANGUAGES[to]


def _check_names(inputs: Inputs) -> None:
    names = [inputs.name(column) for column in inputs.encoding.feature_columns]
    if inputs.column in names:
        raise OptionError(
            f"the policy reads a column '{inputs.column}'; choose another name for the action, "
            "with column= (--column)"
        )
    # Two of the policy's columns with one name would both be read from the same column.
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"columns: named more than once: {quoted(twice)}")
    wrong = [text for text in inputs.texts if any(map(_is_control, text))]
    if wrong:
        raise PolicyError(
            f"{wrong[0]!r} has a line break or another control character, which other programs may "
            "read differently; rename that column, label or action"
        )


def _is_control(sign: str) -> bool:
    """Whether it ends a line, is a control character, or is not a character at all."""
    return unicodedata.category(sign) in ("Cc", "Cs", "Cn", "Zl", "Zp")


def _check_decisions(rule: WrittenRule, inputs: Inputs, decide: Decide) -> None:
    """Refuse a kind of policy whose `written_in` disagrees with its `decide`."""
    differ = share_that_differs(rule, inputs, decide)
    if differ > MOST_DIFFERENT:
        raise PolicyError(
            f"what would be exported decides {differ:.0%} of made-up rows differently from the "
            "policy; its kind has to say with written_in what its decide does"
        )
