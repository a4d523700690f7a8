"""The gains of a tree from other thresholds, with differential privacy."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import Moves, beyond_rows
from fedopl.policies.trees.nodes import branches_of, depth_of, from_array
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


def _gains_move(study: Study) -> float:
    """How far a row moves the gains: it meets one question per level of the tree."""
    setting = PrivateSetting(study)
    return setting.bounds.contrast * setting.tables.gains_move


@message
class NoisedGains(Message, code=98):
    """By question and narrow bin, Σ Γ̂(yes) − Γ̂(no), bounded row by row, in units, with noise."""

    gains: Annotated[
        Array, (Axis.QUESTIONS, Axis.NEAR_BINS), Moves(_gains_move, "gains"), PerClient
    ]


@message
class LookPrivately(Query[NoisedGains], code=34, asked=Asked.EACH):
    """Ask what this tree would gain from thresholds close to its own."""

    title = "Sums close to thresholds, with noise"
    content = "by question: differences of scores between thresholds"
    models: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]
    tree: Annotated[Array, (Axis.TREE_NODES, Axis.NODE_NUMBERS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether a tree is searched for with differential privacy, and its thresholds may move."""
        if study.privacy is None or not study.policy.on_grid:
            return False
        return PrivateSetting(study).tables.may_refine

    def is_plausible(self, study: Study) -> bool:
        """Check for a tree of this study: in a deeper one a row counts in more questions."""
        try:
            root = from_array(self.tree, study.columns, range(study.n_actions))
        except ValueError:
            return False
        return 0 < depth_of(root) <= study.tree.depth and super().is_plausible(study)

    def look(self, study: Study) -> SecondLook:
        """The tree, and the thresholds near those of its questions."""
        root = from_array(self.tree, study.columns, range(study.n_actions))
        return PrivateSetting(study).tables.look(root)

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """One number for each narrow bin of each question."""
        return {"gains": (len(branches_of(self.look(study).root)), NEAR_BINS)}

    def fault_in(self, answer: NoisedGains, study: Study, n_rows: int) -> str | None:
        """Check for numbers for each question, none larger than its rows and noise allow."""
        if len(answer.gains) != len(branches_of(self.look(study).root)):
            return "the gains are not those of the questions"
        return beyond_rows(answer, study, n_rows)
