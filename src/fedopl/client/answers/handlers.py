"""The function that answers each query."""

from collections.abc import Callable
from typing import Any, get_type_hints

from fedopl.client.answers import (
    classify_contexts,
    compare_models,
    compare_with_target,
    describe,
    learning,
    sum_cells,
    sum_near_thresholds,
    tell_fit,
    tell_models,
    tell_moments,
)
from fedopl.client.answers.valuing import value_personal
from fedopl.client.private import private_answers
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.client.screening import screen_terms
from fedopl.client.workspace import TargetWorkspace, Workspace
from fedopl.messages.message import Message, Query

Handler = Callable[[Workspace, Any], Message]
_ANSWERING: tuple[Handler, ...] = (
    learning.enrol,
    learning.sum_outcomes,
    learning.sum_scores,
    learning.sum_pairs,
    learning.improve_policy,
    learning.slope_of_value,
    sum_cells.count_bins,
    sum_cells.sum_cells,
    describe.answer,
    tell_models.answer,
    compare_models.answer,
    classify_contexts.answer,
    tell_moments.answer,
    tell_fit.tell_fit,
    tell_fit.tell_interactions,
    learning.sum_by_fold,
    learning.tell_weight,
    sum_near_thresholds.answer,
    learning.train_network,
    screen_terms.screen_products,
    screen_terms.take_found,
    screen_terms.screen_jumps,
    value_personal.sum_contrasts,
    value_personal.answer,
    compare_with_target.value_as_source,
    compare_with_target.balance_contexts,
)
_ANSWERING_AS_TARGET: tuple[Callable[[TargetWorkspace, Any], Message], ...] = (
    compare_with_target.tell_contexts,
    compare_with_target.value_as_target,
)
_ANSWERING_PRIVATELY: tuple[Callable[[PrivateWorkspace, Any], Message], ...] = (
    private_answers.enrol_privately,
    private_answers.sum_privately,
    private_answers.sum_residuals,
    private_answers.values_privately,
    private_answers.values_apart,
    private_answers.sum_cells_privately,
    private_answers.look_privately,
    private_answers.sum_candidates,
    private_answers.tell_keys,
    private_answers.take_roster,
    private_answers.share_secrets,
    private_answers.unmask,
    private_answers.measure_numbers,
    private_answers.take_ranges,
)
# The key is the query that a function answers: the type of its second argument.
HANDLERS: dict[type[Query[Any]], Handler] = {
    [*get_type_hints(handler).values()][1]: handler for handler in _ANSWERING
}
TARGET_HANDLERS = {
    [*get_type_hints(handler).values()][1]: handler for handler in _ANSWERING_AS_TARGET
}
PRIVATE_HANDLERS = {
    [*get_type_hints(handler).values()][1]: handler for handler in _ANSWERING_PRIVATELY
}
