"""A policy as an ONNX model: one input for each column, one output with the action."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.policies.export.target import Inputs, Target, WrittenRule, header_lines

_COMPARING = (
    "Every column is an input of shape (rows, 1), of doubles or of texts; NaN and an empty text "
    "are missing. The output is an empty text where a row cannot be decided."
)
# Old enough for most runtimes; the operators of the second set know texts.
OPSET, ML_OPSET, IR_VERSION = 17, 2, 8
MISSING, UNKNOWN = -1, -2


def onnx_model(rule: WrittenRule, inputs: Inputs) -> bytes:
    """The model as bytes."""
    try:
        import onnx
    except ImportError:
        raise OptionError("onnx is not installed; run: pip install 'fedopl[onnx]'") from None
    target = _Onnx(inputs, onnx.helper, onnx.numpy_helper)
    target.action_text(rule(target))
    make, kinds = onnx.helper, onnx.TensorProto
    kind_of = dict.fromkeys(inputs.encoding.numeric, kinds.DOUBLE)
    graph = make.make_graph(
        target.nodes,
        "policy",
        [
            make.make_tensor_value_info(
                inputs.name(column), kind_of.get(column, kinds.STRING), ["rows", 1]
            )
            for column in inputs.encoding.feature_columns
        ],
        [make.make_tensor_value_info(inputs.column, kinds.STRING, ["rows", 1])],
        target.constants,
    )
    model = make.make_model(
        graph,
        producer_name="fedopl",
        ir_version=IR_VERSION,
        doc_string="\n".join(header_lines(inputs, _COMPARING)),
        opset_imports=[make.make_opsetid("", OPSET), make.make_opsetid("ai.onnx.ml", ML_OPSET)],
    )
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _operation(kind: str) -> Callable[..., str]:
    """An operation that is a single node, of its terms and of numbers as constants."""

    def added(target: "_Onnx", *parts: str | float) -> str:
        terms = (one if isinstance(one, str) else target.constant([[one]]) for one in parts)
        return target.node(kind, *terms)

    return added


class _Onnx(Target[str]):
    """Terms are the names of tensors of shape (rows, 1); actions are their codes."""

    def __init__(self, inputs: Inputs, make: Any, arrays: Any) -> None:
        super().__init__(inputs)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._make, self._arrays = make, arrays
        self._codes = {column: self._level_codes(column) for column in inputs.encoding.categorical}

    def action_text(self, decided: str) -> None:
        """The output: the action's name, or an empty text if a row cannot be decided."""
        known = ""
        for column in self.inputs.encoding.feature_columns:
            own = self._known(column)
            known = self.both(known, own) if known else own
        code = self.node("Where", known, decided, self.constant([[UNKNOWN]]))
        self.node(
            "LabelEncoder",
            code,
            output=self.inputs.column,
            domain="ai.onnx.ml",
            keys_int64s=range(len(self.inputs.actions)),
            values_strings=list(self.inputs.actions),
            default_string="",
        )

    at_most = _operation("LessOrEqual")
    at_least = _operation("GreaterOrEqual")
    negated = _operation("Not")
    both = _operation("And")
    either = _operation("Or")
    product = _operation("Mul")
    choice = _operation("Where")

    def number(self, column: str) -> str:
        name = self.inputs.name(column)
        if not self.inputs.marked:
            return name
        return self.node("Where", self.is_missing(column), self.constant([[0.0]]), name)

    def is_missing(self, column: str) -> str:
        if column in self.inputs.encoding.numeric:
            return self.node("IsNaN", self.inputs.name(column))
        return self.node("Equal", self._codes[column], self.constant([[MISSING]]))

    def is_level(self, column: str, level: str) -> str:
        place = self.inputs.encoding.categorical[column].index(level)
        return self.node("Equal", self._codes[column], self.constant([[place]]))

    def unless(self, condition: str, number: str) -> str:
        return self.node("Where", condition, self.constant([[self.lowest]]), number)

    def flag(self, condition: str) -> str:
        return self.node("Cast", condition, to=self._make.np_dtype_to_tensor_dtype(np.dtype("f8")))

    def between(self, number: str, low: float, high: float) -> str:
        return self.node("Clip", number, self.constant(low), self.constant(high))

    def in_units(self, number: str, middle: float, unit: float) -> str:
        above = self.node("Sub", number, self.constant([[middle]]))
        return self.node("Div", above, self.constant([[unit]]))

    def above(self, number: str, knot: float) -> str:
        difference = self.node("Sub", number, self.constant([[knot]]))
        return self.node("Max", difference, self.constant([[0.0]]))

    def wave(self, parts: Sequence[tuple[float, str]], phase: float) -> str:
        angle = [self.product(number, frequency) for frequency, number in parts]
        return self.node("Cos", self.node("Sum", *angle, self.constant([[phase]])))

    def weighted_sums(
        self, names: Sequence[str], columns: Sequence[tuple[str, str]], parameters: FloatArray
    ) -> list[str]:
        return self._columns_of(self._sums(columns, parameters), len(names))

    def rectified_sums(
        self, _layer: int, columns: Sequence[tuple[str, str]], parameters: FloatArray
    ) -> list[str]:
        units = self.node("Relu", self._sums(columns, parameters))
        return self._columns_of(units, len(parameters))

    def _sums(self, columns: Sequence[tuple[str, str]], parameters: FloatArray) -> str:
        features = self.node("Concat", *(column for _, column in columns), axis=1)
        product = self.node("MatMul", features, self.constant(parameters[:, :-1].T))
        return self.node("Add", product, self.constant(parameters[None, :, -1]))

    def _columns_of(self, beside: str, n_columns: int) -> list[str]:
        places = range(n_columns)
        return [self.node("Gather", beside, self.constant([n]), axis=1) for n in places]

    def less_length(self, number: str, parts: Sequence[str]) -> str:
        if not parts:
            return number
        most = self.largest_squared
        bounded = [self.between(part, -most, most) for part in parts]
        squares = [self.product(part, part) for part in bounded]
        return self.node("Sub", number, self.node("Sqrt", self.node("Sum", *squares)))

    def counts(self, _names: Sequence[str], conditions: Sequence[Sequence[str]]) -> list[str]:
        flags = [[self.flag(condition) for condition in own] for own in conditions]
        return [self.node("Sum", *own) for own in flags]

    def action(self, code: int) -> str:
        return self.constant([[code]])

    def largest(self, scores: Mapping[int, str]) -> str:
        codes = sorted(scores)
        beside = self.node("Concat", *(scores[code] for code in codes), axis=1)
        first = self.node("ArgMax", beside, axis=1, keepdims=1, select_last_index=0)
        return self.node("Gather", self.constant(codes), first)

    def _known(self, column: str) -> str:
        """Whether the policy can decide with the value in a column."""
        if column not in self.inputs.encoding.numeric:
            least = MISSING if self.inputs.marked else 0
            return self.at_least(self._codes[column], least)
        name = self.inputs.name(column)
        finite = self.negated(self.node("IsInf", name))
        if self.inputs.marked:
            return finite
        return self.both(finite, self.negated(self.node("IsNaN", name)))

    def _level_codes(self, column: str) -> str:
        """The position of each row's level, or a code for missing or unknown."""
        levels = self.inputs.encoding.categorical[column]
        other = self.inputs.encoding.others.get(column)
        spelled = enumerate(self.inputs.spellings(column).values())
        codes = {text: place for place, own in spelled for text in own}
        codes |= dict.fromkeys(self.inputs.gaps(column), MISSING)
        return self.node(
            "LabelEncoder",
            self.inputs.name(column),
            domain="ai.onnx.ml",
            keys_strings=list(codes),
            values_int64s=list(codes.values()),
            default_int64=levels.index(other) if other else UNKNOWN,
        )

    def node(self, kind: str, *terms: str, output: str = "", **settings: Any) -> str:
        output = output or f"fedopl/step {len(self.nodes) + 1}"
        self.nodes.append(self._make.make_node(kind, list(terms), [output], **settings))
        return output

    def constant(self, values: Any) -> str:
        name = f"fedopl/constant {len(self.constants) + 1}"
        array = np.ascontiguousarray(values)
        self.constants.append(self._arrays.from_array(array, name))
        return name
