"""Who answers what: the function for every query that a client answers."""

from collections.abc import Callable
from typing import Any, cast, get_type_hints

from fedopl.client.answers.diagnosis import (
    classify_contexts,
    compare_models,
    tell_models,
    tell_moments,
)
from fedopl.client.answers.evaluation import describe, estimate_values
from fedopl.client.answers.learning import (
    enrol,
    improve_policy,
    slope_of_value,
    sum_fitting,
    sum_outcomes,
    sum_pairs,
    sum_scores,
)
from fedopl.client.answers.trees import count_bins, sum_cells, value_leaves
from fedopl.client.workspace import Workspace
from fedopl.messages.message import Message, Query

Handler = Callable[[Workspace, Any], Message]
_ANSWERING = (
    enrol,
    sum_outcomes,
    sum_scores,
    sum_fitting,
    sum_pairs,
    improve_policy,
    slope_of_value,
    count_bins,
    sum_cells,
    estimate_values,
    describe,
    value_leaves,
    tell_models,
    compare_models,
    classify_contexts,
    tell_moments,
)


def _query_of(handler: Handler) -> type[Query[Any]]:
    """The query that a function answers: the type of its second argument."""
    _, query, _ = get_type_hints(handler).values()
    return cast(type[Query[Any]], query)


HANDLERS: dict[type[Query[Any]], Handler] = {
    _query_of(module.answer): module.answer for module in _ANSWERING
}
