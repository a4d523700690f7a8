"""Grows trees of any depth: exact up to depth two; deeper trees are searched two levels ahead.

At every node the best tree of depth two is found. Its first question is kept, and both answers are
searched on the next level. On the last level the whole depth-two tree is kept. So every tree is at
least as good as the exact one of depth two, but beyond that depth it need not be the best of all.
"""

from collections.abc import Callable

from fedopl.base.arrays import FloatArray
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.grid_rules import Rules
from fedopl.policies.trees.nodes import Branch, Leaf, Node
from fedopl.policies.trees.search import best_tree
from fedopl.policies.trees.tree_plan import LOOK_AHEAD

# In a partition, a leaf with nothing left to search; open leaves are counted from zero.
DONE = -1
EVERYBODY = Leaf(0)
NO_TREE = (
    "no tree keeps to the rules: lower tree.minimum_leaf, or let tree.allowed leave an action to "
    "everybody that a leaf may hold"
)

AnswerOnPath = tuple[int, float, bool]  # column, cut, whether yes
Path = tuple[AnswerOnPath, ...]
CellsOf = Callable[[Node], list[FloatArray] | None]


def grow_tree(grid: Grid, depth: int, rules: Rules, cells_of: CellsOf) -> tuple[Node, float]:
    """The tree and its value.

    `cells_of` is called once for each level. Its argument is a partition: a tree whose leaves say
    which open node a row belongs to, or DONE. It returns the sums of every open node. If it returns
    none, the tree ends with the best tree seen from the level above.
    """
    decided: dict[Path, Node] = {}
    questions: dict[Path, Branch] = {}
    ahead: dict[Path, Node] = {}
    value = 0.0
    opened: list[Path] = [()]
    while opened:
        remaining = depth - len(opened[0])
        partition = _built((), decided, questions, {path: n for n, path in enumerate(opened)})
        below: list[Path] = []
        sums = cells_of(partition)
        if sums is None:
            decided |= {path: ahead[path] for path in opened}
            break
        for path, cells in zip(opened, sums, strict=True):
            own = _rules_along(path, grid, rules)
            found = best_tree(cells, grid, min(remaining, LOOK_AHEAD), own)
            if remaining <= LOOK_AHEAD or isinstance(found.node, Leaf):
                decided[path], value = found.node, value + found.value
                continue
            question = found.node
            questions[path], value = question, value - rules.split_cost
            for yes, node in ((True, question.yes), (False, question.no)):
                below.append((*path, (question.column, question.cut, yes)))
                ahead[below[-1]] = node
        opened = below
    return simplified(_built((), decided, questions, {})), value


def simplified(node: Node) -> Node:
    """A tree with the same decisions, without questions that change no decision."""
    if isinstance(node, Leaf):
        return node
    yes, no = simplified(node.yes), simplified(node.no)
    return yes if yes == no else Branch(node.column, node.cut, yes, no)


def n_levels(depth: int) -> int:
    """The largest number of times that cells are asked for."""
    return max(1, depth - LOOK_AHEAD + 1)


def _rules_along(path: Path, grid: Grid, rules: Rules) -> Rules:
    for column, cut, yes in path:
        rules = rules.within(grid, column, grid.cuts[column].index(cut), yes=yes)
    return rules


def _built(
    path: Path,
    decided: dict[Path, Node],
    questions: dict[Path, Branch],
    opened: dict[Path, int],
) -> Node:
    """The tree below a path: a partition if there are open nodes, otherwise the finished tree."""
    if path in opened:
        return Leaf(opened[path])
    if path in decided:
        return Leaf(DONE) if opened else decided[path]
    asked = questions[path]
    yes, no = (
        _built((*path, (asked.column, asked.cut, answer)), decided, questions, opened)
        for answer in (True, False)
    )
    return Branch(asked.column, asked.cut, yes, no)
