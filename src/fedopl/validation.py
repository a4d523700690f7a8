"""What pydantic found wrong, in our words."""

from pydantic import ValidationError


def in_words(error: ValidationError, what: str) -> str:
    """One line per mistake: the field, what was wrong, and what came."""
    lines = []
    for mistake in error.errors(include_url=False):
        field = ".".join(str(part) for part in mistake["loc"])
        message = mistake["msg"].removeprefix("Value error, ")
        says_it = mistake["type"] in ("missing", "value_error")
        came = "" if says_it else f", came {mistake['input']!r}"
        lines.append(f"{what}: {field}: {message}{came}" if field else f"{what}: {message}{came}")
    return "\n".join(lines)
