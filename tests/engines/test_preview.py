"""A preview shows the very numbers that leave, and leaves no trace."""

import contextlib

import numpy as np
import pytest

from fedopl.base.errors import FederationError
from fedopl.client.client_file import read_client, read_clients
from fedopl.engines.preview import rehearse
from fedopl.engines.run import open_clients
from fedopl.messages import codec
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.private.privacy_plan import EXACT
from fedopl.study.study_file import read_study
from tiny_study import STRONG, everything_in, fedopl, rows, write_csv, write_tiny
from trips import Listening

ORACLES = ("csoaa-exact", "csoaa-sgd", "wap", "direct")


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny", ("north", "south"))


def rehearsed(tiny, name="north"):
    study, _ = read_study(tiny.study)
    client = read_client(tiny.clients / name)
    return rehearse(study, client, client.read(study.table))


def answers(tiny, name, names):
    """What a client really answers, in a run with these clients."""
    study, _ = read_study(tiny.study)
    clients = {n: client for n, client in read_clients(tiny.clients).items() if n in names}
    transport = Listening(open_clients(study, clients)[1])
    with contextlib.suppress(FederationError):
        run_study(Conversation(study, transport))
    sizes = axis_sizes(study)
    return [
        (type(codec.decode(query, sizes)).__name__, codec.decode(answer, sizes), len(answer))
        for who, query, answer in transport.heard
        if who == name
    ]


@pytest.mark.parametrize("oracle", ORACLES)
def test_every_number_is_the_one_the_door_answers_a_client_alone(tiny, oracle):
    tiny.add(f'[policy]\noracle = "{oracle}"\n[plan]\nrounds = 3\n[evaluation]\nshare = 0.25\n')
    shown = rehearsed(tiny)
    real = answers(tiny, "north", ["north"])
    assert [left.query for left in shown] == [query for query, _, _ in real]
    for left, (_, answer, n_bytes) in zip(shown, real, strict=True):
        assert (left.answer, left.n_bytes) == (type(answer).__name__, n_bytes)
        for part in left.parts:
            assert np.array_equal(part.numbers, getattr(answer, part.name), equal_nan=True)
            assert part.numbers.shape == tuple(map(len, part.labels))
        for name, number in left.scalars.items():
            assert getattr(answer, name) == number
        kept = (
            {part.name for part in left.parts} | set(left.scalars) | {"study", "exchange", "reason"}
        )
        told = {name for name, _ in codec.FIELDS[type(answer)] if np.size(getattr(answer, name))}
        assert told <= kept


def test_sums_over_rows_are_those_it_sends_when_others_take_part(tiny):
    shown = {left.query: left for left in rehearsed(tiny)}
    real = {query: answer for query, answer, _ in answers(tiny, "north", ["north", "south"])}
    for query in ("Enrol", "SumOutcomes"):
        for part in shown[query].parts:
            assert np.array_equal(part.numbers, getattr(real[query], part.name))


def test_a_secret_of_the_client_is_used_as_in_a_run(tiny):
    tiny.add('[policy]\noracle = "csoaa-sgd"\n[plan]\nrounds = 100\n[evaluation]\nshare = 0.25\n')
    tiny.edit("[data]", f'secret = "{STRONG}"\n[data]', tiny.settings())
    real = answers(tiny, "north", ["north"])
    assert [left.answer for left in rehearsed(tiny)] == [type(a).__name__ for _, a, _ in real]


def test_a_refusal_ends_the_preview_and_is_shown(tiny):
    tiny.add("[limits]\nminimum_rows = 1000\n", tiny.settings())
    shown = [(left.query, left.refusal, left.parts) for left in rehearsed(tiny)]
    assert shown == [("Enrol", "TOO_FEW_ROWS", ()), ("SumOutcomes", "TOO_FEW_ROWS", ())]


def test_a_preview_writes_nothing(tiny):
    before = everything_in(tiny.folder)
    rehearsed(tiny)
    assert everything_in(tiny.folder) == before


def test_terms_of_a_basis_are_named_wherever_sums_are_of_them(tiny):
    tiny.add('[basis]\nkind = "hinges"\n[basis.knots]\nage = [50, 70]\n')
    tiny.add("[limits]\nparameter_share = 10\n", tiny.settings())
    shown = {left.query: {part.name: part for part in left.parts} for left in rehearsed(tiny)}
    features = ("age", "severity", "living=alone")
    terms = (*features, "age above 50", "age above 70", "intercept")
    assert shown["SumOutcomes"]["sums"].labels[-1] == (*terms, "outcome")
    assert shown["SumScores"]["grams"].labels[-1] == terms
    assert shown["SumScores"]["grams"].axes[-2:] == ("terms", "terms")
    assert shown["Describe"]["decided"].labels[0] == (*features, "intercept")


@pytest.mark.parametrize(("minimum", "n_sums", "share"), [(0, 2, "1.0%"), (5, 0, "0.0%")])
def test_the_rules_are_printed_and_sums_that_rest_on_one_row_are_counted(
    tiny, minimum, n_sums, share
):
    """One row of each action lives alone, so their sums by fold and action rest on it."""
    table = rows(200)
    places = [table["arm"].index(arm) for arm in ("usual", "new")]
    table["living"] = ["alone" if row in places else "with others" for row in range(200)]
    write_csv(tiny.table(), table)
    tiny.add("[evaluation]\nshare = 0\n")
    tiny.add(f"[limits]\nminimum_cell = {minimum}\n", tiny.settings())
    said = fedopl("preview", tiny.study, tiny.clients / "north", "--brief").out.splitlines()
    cell = "no value and no action rests on fewer than minimum_cell = 0 rows"
    if minimum:
        cell = (
            "fewer than 5 rows have another value of living=alone at 0: held at that for all rows"
        )
    assert said[:8] == [
        f"{EXACT}.",
        "",
        "rows: 200, minimum_rows is 30: takes part",
        f"cell: {cell}",
        "share: 200 rows to learn from, 4 terms: adds sums of terms",
        "splits: 5 of 5 folds",
        "once: at most 7 questions, each answered once; 0 of 20 studies answered before",
        f"{n_sums} sums of a flag, by fold and action, rest on a single row; {share} of the rows "
        "learned from are alone in one",
    ]
