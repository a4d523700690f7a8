"""A tree of questions, from left to right, with the leaves in their actions' colours."""

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf, Node
from fedopl.report.figures.colours import ACTIONS, INK, PAGE, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, label_room, short

# In inches: between levels and around everything; a line of text, the margin around it, and between
# leaves.
_GAP, _EDGE = 0.38, 0.04
_LINE_HEIGHT, _MARGIN, _APART = 0.165, 0.09, 0.12
_MOST_LETTERS, _MOST_LETTERS_DEEP = 24, 18  # of a line; fewer where there are many levels
_DEEP = 3  # levels, above which boxes get narrower
_MOST_ROOMY = 16  # leaves with a second line


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The text on a leaf, and the position of its colour."""

    action: str
    note: str
    colour: int


@dataclass(frozen=True, kw_only=True)
class _Box:
    """A question or a leaf, with what lies below it."""

    level: int
    down: float  # in leaves
    text: str
    colour: str
    below: tuple["_Box", ...] = ()
    answers: tuple[str, ...] = ()  # that lead there

    def all(self) -> Iterator["_Box"]:
        yield self
        for box in self.below:
            yield from box.all()


def tree_chart(name: str, policy: TreePolicy, endings: list[Ending]) -> Drawing:
    """The tree, as wide as its levels need."""
    root = _box(policy.root, policy, enumerate(endings), 0)
    boxes = list(root.all())
    starts, widths = _columns(boxes)
    slot = _APART + max(_height(box) for box in boxes if not box.below)
    width = max(WIDTH, starts[-1] + widths[-1] + _EDGE)
    height = slot * len(endings) + 2 * _EDGE

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, 0, 0, width, height)
        axes.set_axis_off()
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        for box in boxes:
            middle = _EDGE + slot * (box.down + 0.5)
            _draw_box(axes, box, starts[box.level], middle, widths[box.level])
            for answer, child in zip(box.answers, box.below, strict=True):
                start = starts[box.level] + widths[box.level], middle
                end = starts[child.level], _EDGE + slot * (child.down + 0.5)
                _draw_branch(axes, start, end, answer)

    return Drawing(name=name, height=height, draw=draw, width=width)


def _box(node: Node, policy: TreePolicy, endings: Iterator[tuple[int, Ending]], level: int) -> _Box:
    most = _MOST_LETTERS if policy.depth <= _DEEP else _MOST_LETTERS_DEEP
    if isinstance(node, Leaf):
        down, ending = next(endings)
        joint = "\n" if len(policy.leaves()) <= _MOST_ROOMY else "  "
        text = f"{short(ending.action, most)}{joint}{ending.note}".rstrip()
        return _Box(level=level, down=down, text=text, colour=ACTIONS[ending.colour])
    yes, no = (_box(child, policy, endings, level + 1) for child in (node.yes, node.no))
    return _Box(
        level=level,
        down=(yes.down + no.down) / 2,
        text=_question(policy, node, most),
        colour=PAGE,
        below=(yes, no),
        answers=policy.question_and_answers(node)[2],
    )


def _question(policy: TreePolicy, split: Branch, most: int) -> str:
    """The question on one line or two; only a long column name is cut off, not the condition."""
    column, asked, _ = policy.question_and_answers(split)
    whole = f"{column} {asked}".rstrip()
    if short(whole, most) == whole or not asked:
        return short(whole, most)
    return f"{short(column, most)}\n{short(asked, most)}"


def _columns(boxes: list[_Box]) -> tuple[list[float], list[float]]:
    """The start and the width of each level's boxes."""
    levels = 1 + max(box.level for box in boxes)
    widths = [
        label_room([line for box in boxes if box.level == level for line in box.text.split("\n")])
        for level in range(levels)
    ]
    starts = [_EDGE + sum(widths[:level]) + _GAP * level for level in range(levels)]
    return starts, widths


def _height(box: _Box) -> float:
    return _LINE_HEIGHT * len(box.text.split("\n")) + _MARGIN


def _draw_box(axes: Axes, box: _Box, left: float, middle: float, width: float) -> None:
    height = _height(box)
    axes.add_patch(
        FancyBboxPatch(
            (left, middle - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor=box.colour,
            edgecolor=QUIET if box.below else box.colour,
            linewidth=0.9,
        )
    )
    axes.text(
        left + width / 2, middle, box.text, ha="center", va="center", color=INK, linespacing=1.15
    )


def _draw_branch(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], answer: str
) -> None:
    turn = start[0] + 0.1
    across, down = [start[0], turn, turn, end[0]], [start[1], start[1], end[1], end[1]]
    axes.plot(across, down, color=QUIET, linewidth=0.9, zorder=0)
    axes.text((turn + end[0]) / 2, end[1] - 0.05, answer, ha="center", size=8.5, color=QUIET)
