"""A finished run in memory."""

from dataclasses import dataclass, field, replace
from html import escape
from textwrap import fill
from typing import Any

from fedopl.base.errors import OptionError
from fedopl.base.labels import GLOBAL
from fedopl.messages.about_masks import SUMMED
from fedopl.messages.evaluation.interactions_left import InteractionsLeft
from fedopl.messages.evaluation.model_fit import ModelFit
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.policies.linear import constant_policy
from fedopl.policies.policy import Policy
from fedopl.results.descriptions import Descriptions
from fedopl.results.diagnosis import Diagnosis
from fedopl.results.membership import Membership, known_of_it, since_then
from fedopl.results.mixture_search import Search
from fedopl.results.model_doubts import TOO_SIMPLE, why_in_doubt
from fedopl.results.reliance import Reliance
from fedopl.results.round import Round
from fedopl.results.spending.budget_curve import BudgetCurve, BudgetPoint
from fedopl.results.spending.budget_words import budget_notes, gain_words, verdict_within
from fedopl.results.spending.priced_policies import solved_at
from fedopl.results.sums.for_newcomers import ForNewcomers
from fedopl.results.sums.robust_weights import weights_for
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.tree_statistics import ThresholdsMoved, TreeStatistics
from fedopl.results.target_value import AtTarget
from fedopl.results.value_tables import (
    BEST_ARM,
    BEST_CANDIDATE,
    LEARNED,
    EstimateTable,
    GainTable,
    GuardrailTable,
    ImprovementTable,
    LeafTable,
    OutcomeTable,
    PersonalTable,
    SplitTables,
    ValueTable,
    arm_name,
    valued_as,
)
from fedopl.study.mixture import FOUND, Counted, Weights, as_mixture
from fedopl.study.private.added_up import most_lacking
from fedopl.study.spending import net_words
from fedopl.study.study import Study

_WAY_OF_LEARNING = "Values are those of the way of learning: of {}."
_LINE = 100  # characters of a printed one
_LEARNED_ALIKE = (
    "{} learned in the same way, {}on rows that it had not seen; the policy that you get is "
    "learned from all rows"
)
_WAY_OF_CHOOSING = (
    "Every candidate is valued on all rows. Gains are those of the way of choosing: in each fold, "
    "of the candidate\nthat came out best in the others. The one that you get came out best in all "
    "rows."
)
_OF_OTHER_ROWS = (
    "All rows are valued. This assumes that none of the policies was learned from these rows: on "
    "those,\na policy looks better than it is."
)
_NOT_LEARNED = (
    "What nothing was learned for, an action for everybody and what was done, is valued on all rows"
)
_NOT_CHOSEN = "Every candidate, and what was done, is valued on all rows"
_MEDIANS = (
    "Values and gains are medians over {n} splits of the same rows; their errors include how "
    "far the\nsplits differ. The policy itself is that of the first split."
)

_NOT_AT_TARGET = (
    "Nothing is said of '{0}', which has contexts only: policies were valued at the sources alone. "
    "A run of\nthe study says what the policy that it learns is worth there."
)

_NET = "Values, and what was done among them, are {net} per decision: {costs}."

_WRONG = (
    "The numbers below are wrong by about as much as richer outcome models move values, which is "
    "more\nthan their intervals say."
)


def as_used(policy: Policy, study: Study) -> Policy:
    """The policy with the study's encoding and permissions."""
    if study.table or study.permissions:
        return type(policy).from_numbers(policy.numbers(), study)
    return policy


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """A finished run: the policy, its values, and how it was learned."""

    study: Study
    policy: Policy | None  # None where the best candidate is a rule in code
    chosen: str  # what the learned policy is called in the tables
    best_arm: str
    mixture: Weights
    rows: dict[str, int]  # training rows each client enrolled with
    rounds: tuple[Round, ...]
    statistics: ScoreStatistics
    described: Descriptions | None  # None where nobody was asked, or nobody answered
    values: ValueTable = field(default_factory=ValueTable)
    gains: GainTable = field(default_factory=GainTable)
    improvements: ImprovementTable = field(default_factory=ImprovementTable)  # over what was done
    row_weights: dict[str, float] | None = None  # what those weigh together, where clients told
    clipped: dict[str, int] = field(default_factory=dict)  # numbers beyond agreed ranges, by client
    fitted: dict[str, ModelFit] = field(default_factory=dict)  # by client, whether models fit
    interactions: dict[str, InteractionsLeft] = field(default_factory=dict)  # by client
    tree: TreeStatistics | None = None  # None where no tree was searched for on a grid
    leaves: LeafTable = field(default_factory=LeafTable)  # where they were asked for
    search: Search | None = None  # how the mixture was found, where it was not agreed
    diagnosis: Diagnosis | None = None  # None where nobody was asked
    reliance: Reliance | None = None  # None where there is one client, or no value
    outcomes: OutcomeTable = field(default_factory=OutcomeTable)  # that guardrails are about
    guardrails: GuardrailTable = field(default_factory=GuardrailTable)  # whether each is kept
    personal: PersonalTable = field(default_factory=PersonalTable)  # where clients have some
    target: AtTarget | None = None  # what it is worth at a site without outcomes, if there is one
    curve: BudgetCurve | None = None  # what the policy gains and spends, where there is a budget
    splits: tuple[SplitTables, ...] = ()  # where rows were split several times, the first first
    for_newcomers: ForNewcomers | None = None  # None where nobody can join or leave
    membership: Membership | None = None  # where clients joined or left since
    # What `in_doubt` said with the answers of all, "" for nothing, where a client's are not kept.
    doubt_then: str | None = None

    @property
    def own_rounds(self) -> tuple[Round, ...]:
        """The exchanges in which the policy was learned: those of the first split."""
        if not (self.splits or self.study.evaluation.refits):
            return self.rounds
        _, second, *_ = (
            place for place, one in enumerate(self.rounds) if one.query == Enrol.__name__
        )
        return self.rounds[:second]

    @property
    def without_sums(self) -> list[str]:
        """The clients that are scored and valued, but add no sums of terms."""
        return sorted(name for name, own in self.statistics.sums.items() if not own.has_sums)

    @property
    def refusals_by_reason(self) -> dict[str, tuple[set[str], list[str]]]:
        """By reason, the clients that did not contribute for it, and to which questions."""
        query_of = {latest.exchange: latest.query for latest in self.rounds}
        found: dict[str, tuple[set[str], list[str]]] = {}
        for exchange, client, why in self.refusals:
            who, asked = found.setdefault(why, (set(), []))
            who.add(client)
            asked += [query_of[exchange]] if query_of[exchange] not in asked else []
        return found

    @property
    def refusals(self) -> tuple[tuple[int, str, str], ...]:
        """Every (exchange, client, reason) in which a client did not contribute."""
        return tuple(
            (latest.exchange, name, why)
            for latest in self.rounds
            for name, why in sorted(
                {
                    **latest.refused,
                    **{name: f"rejected: {why}" for name, why in latest.rejected.items()},
                    **dict.fromkeys(latest.silent, "no answer"),
                }.items()
            )
        )

    @property
    def went_back(self) -> tuple[tuple[int, str, int], ...]:
        """Every (exchange, client, entries) before which a ledger lost at least so many entries."""
        return tuple(
            (one.exchange, name, n_entries)
            for one in self.rounds
            for name, n_entries in sorted(one.went_back.items())
        )

    @property
    def lacking(self) -> tuple[tuple[int, str, list[str]], ...]:
        """Every (exchange, query, missing clients) of a masked sum over fewer than all clients."""
        if not most_lacking(self.study):
            return ()
        return tuple(
            (one.exchange, one.query, sorted(set(one.asked) - set(one.answered)))
            for one in self.rounds
            if QUERY_NAMED[one.query] in SUMMED and len(one.answered) < len(one.asked)
        )

    @property
    def counted(self) -> Counted:
        """What mixtures of these clients can count by."""
        return Counted(rows=self.rows, weights=self.row_weights)

    @property
    def second_look(self) -> ThresholdsMoved | None:
        """Clients' reports on thresholds close to the tree's; None if there are none for it."""
        tree = self.tree
        if tree and self.membership and not tree.is_looked_at_twice(self.mixture):
            return None
        return tree.closer if tree else None

    def resolve(self, mixture: object) -> Policy:
        """The exact policy for another mixture, from the available sums; no client is asked."""
        wanted = as_mixture(mixture)
        if self.study.privacy:
            raise OptionError(
                "resolve: with differential privacy a policy is learned in steps for one mixture; "
                "run the study with the other"
            )
        if wanted.kind in FOUND:
            raise OptionError(
                f"resolve: a mixture of kind '{wanted.kind}' is found by asking; run the study "
                "with it"
            )
        if self.study.budget:
            raise OptionError(
                "resolve: what another mixture spends is not known; run the study with it"
            )
        weights = weights_for(wanted, self.statistics, self.counted)
        if self.tree and self.tree.is_exact:
            return self.tree.solve(weights)
        if not self.study.policy.can_be_resolved:
            raise OptionError(
                "resolve: only policies by csoaa-exact and trees of depth 1 and 2 on a grid "
                "can be solved again"
            )
        study = self.study.model_copy(update={"mixture": wanted})
        return replace(self.statistics, study=study).solve(weights)

    def at_budget(
        self, most: float, client: str = GLOBAL, *, confidence: float | None = None
    ) -> BudgetPoint:
        """The policy for another budget, for all or for one client, and its gain and spending.

        It uses what clients reported in the run; no client is asked again.
        """
        curve, budget = self.curve, self.study.budget
        if curve is None or budget is None:
            raise OptionError(
                "budget: the study has none, so no client reported what its policy spends"
            )
        sure = budget.confidence if confidence is None else confidence
        if not 0.5 <= sure < 1:
            raise OptionError(f"confidence: expected 0.5 to below 1, came {sure:g}")
        plan = budget.model_copy(update={"confidence": sure})
        return self._with_policy(curve.at(most, client, plan=plan))

    def within_budget(self, client: str = GLOBAL) -> BudgetPoint:
        """The gain and spending of the run's policy; at a client, those at its own price."""
        curve, budget = self.curve, self.study.budget
        if curve is None or budget is None or client != GLOBAL:
            return self.at_budget(budget.limit if budget else 1.0, client)
        point, against = curve.within(budget), arm_name(curve.against)
        # The policy itself was valued, not only policies at prices on either side of its own.
        valued = self.gains.estimates()
        return self._with_policy(replace(point, gain=valued.get((against, GLOBAL), point.gain)))

    def _with_policy(self, point: BudgetPoint) -> BudgetPoint:
        """The point with its policy, unless that is a candidate that the run does not keep."""
        if point.candidate is None:
            return replace(point, policy=self.at_price(point.price))
        arms = {arm_name(action): action for action in self.study.actions}
        if point.candidate in arms:
            action, features = arms[point.candidate], self.study.features
            arm = constant_policy(action, self.study.actions, features)
            return replace(point, policy=as_used(arm, self.study))
        return replace(point, policy=self.policy if point.candidate == self.chosen else None)

    def at_price(self, price: float) -> Policy:
        """The policy with this price on each unit spent, as the budget counts units."""
        budget = self.study.budget
        if budget is None:
            raise OptionError("price: the study has no budget, so nothing is counted as spent")
        if self.study.policy.compares_candidates:
            raise OptionError(
                "price: candidates do not change with a price; at_budget says which is best"
            )
        found = solved_at(self.tree or self.statistics, self.mixture, price, self.study)
        assert isinstance(found, Policy)  # noqa: S101
        return as_used(found, self.study)

    @property
    def in_doubt(self) -> str | None:
        """Why the run claims nothing about its results, in words; None if it may claim some."""
        return why_in_doubt(self)

    @property
    def beyond_guardrails(self) -> str:
        """A sentence if the learned policy is not shown to keep every guardrail; else empty."""
        missed = self.guardrails.not_kept(self.chosen, self.study.guardrails)
        what = "The learned policy" if self.chosen == LEARNED else f"'{self.chosen}'"
        rows = self.guardrails.of(self.chosen).values()
        breaks = any(row.verdict == "broken" for row in rows)
        does = "does not keep" if breaks else "is not shown to keep"
        return f"{what} {does} every guardrail: {missed}." if missed else ""

    @property
    def verdict(self) -> str:
        """What guardrails forbid, and whether the learned policy beats the best constant arm."""
        return f"{self.beyond_guardrails} {self._worth}".lstrip()

    @property
    def valued_arm(self) -> str:
        """Whose values are those of the best arm: fold by fold, where folds differ in which it is.

        Otherwise the best arm would be chosen by the rows that it is valued on.
        """
        by_fold = any(row.against == BEST_ARM for row in self.gains.rows)
        return BEST_ARM if by_fold else arm_name(self.best_arm)

    @property
    def valued_as(self) -> str:
        """Whose gains are those of the chosen policy: of candidates fold by fold, if folds differ.

        Otherwise a candidate would be chosen by the rows that its gains are of.
        """
        return valued_as(self.chosen, {row.policy for row in self.values.rows})

    @property
    def _worth(self) -> str:
        """Whether the learned policy beats the best constant arm, in one plain sentence."""
        if not self.study.evaluation.claims_values:
            return "No rows were held out, so nothing is claimed about the policy's value."
        if self.membership and not self.gains.rows:
            return known_of_it(self, self.membership)
        if not self.gains.rows:
            rows = self.study.evaluation.valued("rows")
            return f"No client reported values of {rows}, so nothing is claimed about them."
        if self.in_doubt:
            what = f"{self.in_doubt}, so nothing is claimed about what the policy is worth."
            return what[:1].upper() + what[1:]
        if within := verdict_within(self):
            return within
        against = arm_name(self.best_arm)
        if self.chosen == against:
            return f"The best candidate is a constant arm: {against}."
        gain = self.gains.over(self.valued_arm)
        if self.valued_arm == BEST_ARM:
            against = "chosen fold by fold"
        (low, high), found = gain.interval(), gain_words(gain)
        what = "The learned policy" if self.chosen == LEARNED else f"'{self.chosen}'"
        if self.valued_as == BEST_CANDIDATE:
            what = f"The best candidate of the other folds (of all rows {what})"
        if low > 0:
            return f"{what} beats the best constant arm, {against}, by {found}."
        if high < 0:
            return f"{what} is worse than the best constant arm, {against}: {found}."
        return f"{what} does not demonstrably beat the best constant arm, {against}: {found}."

    def _repr_html_(self) -> str:
        parts = [f"<p><strong>{escape(self.verdict)}</strong></p>"]
        parts += [f"<p>{escape(note)}</p>" for note in self._notes()]
        parts += [table._repr_html_() for table in self._tables()]
        return "".join(parts)

    def __str__(self) -> str:
        return "\n\n".join([self.verdict, *self._notes(), *map(str, self._tables())])

    def _notes(self) -> list[str]:
        """Notes if values are not of the learned policy itself, or less certain than they look."""
        if not self.values.rows:
            return since_then(self, self.membership) if self.membership else []
        is_way, is_chosen = self.values_way_of_learning, self.study.policy.compares_candidates
        notes = {
            fill(_WAY_OF_LEARNING.format(self.learned_alike), _LINE): is_way and not is_chosen,
            _WAY_OF_CHOOSING: is_way and is_chosen,
            _OF_OTHER_ROWS: self.study.evaluation.is_cross_fitted and not is_way,
            fill(self.which_rows, _LINE): bool(self.valued_on_all),
            _MEDIANS.format(n=len(self.splits)): bool(self.splits),
            self._net: bool(self._net),
            _WRONG: self.in_doubt == TOO_SIMPLE,
        }
        there = [self.at_target] if self.at_target else []
        return [*(note for note, is_so in notes.items() if is_so), *budget_notes(self), *there]

    @property
    def values_way_of_learning(self) -> bool:
        """Whether values are of policies learned in the same way, not of the policy itself."""
        plan = self.study.evaluation
        return (plan.is_cross_fitted or plan.refits) and not self.study.evaluates

    @property
    def valued_on_all(self) -> frozenset[str]:
        """What is valued on more rows than what was learned: all rows, as it was not learned."""
        if self.study.evaluation.is_cross_fitted:
            return frozenset()
        gains = [row.estimate.n_rows for row in self.gains.rows if row.client == GLOBAL]
        values = {row.policy: row.estimate for row in self.values.rows if row.client == GLOBAL}
        most = max(gains, default=0)
        return frozenset(name for name, found in values.items() if found.n_rows > most)

    @property
    def which_rows(self) -> str:
        """Which values are of all rows and which are not, in words; empty if none differ."""
        if not self.valued_on_all:
            return ""
        if self.chosen in self.valued_on_all or self.study.policy.compares_candidates:
            if self.gains.rows:
                own = "Gains are those of the one that was chosen, on held-out rows"
                return f"{_NOT_CHOSEN}. {own}, which had no say in that."
            return f"{_NOT_CHOSEN}. What is gained by choosing is not: all rows had a say in that."
        who = "the learned policy" if self.chosen == LEARNED else f"'{self.chosen}'"
        if self.gains.rows:
            return f"{_NOT_LEARNED}; other policies, and what {who} gains, on held-out rows."
        return f"{_NOT_LEARNED}; {who} is not valued."

    @property
    def learned_alike(self) -> str:
        """What is valued, if it is the way of learning."""
        by_fold = self.study.evaluation.is_cross_fitted
        return _LEARNED_ALIKE.format(*(("policies", "each ") if by_fold else ("a policy", "")))

    @property
    def at_target(self) -> str:
        """The value at a site without outcomes, in words; empty if there is no such site.

        If nothing is claimed about values at sources, nothing is claimed there, either.
        """
        if self.target is None and self.study.target:  # policies were valued, and none was learned
            return _NOT_AT_TARGET.format(self.study.target.client)
        if self.target is None:
            return ""
        doubted = replace(self.target, why_not=self.in_doubt or self.target.why_not)
        return doubted.in_words(self.valued_as)

    @property
    def _net(self) -> str:
        costs, net = self.study.costs, net_words(self.study)
        return _NET.format(net=net, costs=costs.in_words) if costs and net else ""

    def _tables(self) -> list[EstimateTable[Any]]:
        """The tables to show; arms that are not the best appear only for all clients together."""
        if not self.values.rows and self.membership:
            known = self.membership.of_policy(self.policy)
            return [*filter(None, (ValueTable(known.values), GainTable(known.gains)))]
        if not self.values.rows:
            return []
        arms = {arm_name(action) for action in self.study.actions}
        others = arms - {arm_name(self.best_arm), self.chosen}
        everybody = {row.policy for row in self.improvements}
        shown: list[EstimateTable[Any]] = [
            self.guardrails,
            self.values.without_clients(others),
            self.gains.without_clients(others),
            self.personal,
        ]
        return [*filter(None, shown), self.improvements.without_clients(everybody)]
