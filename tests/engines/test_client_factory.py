"""Clients that are made when they are asked: the same result, and little memory for each."""

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.base import packed_arrays
from fedopl.base.errors import DataError, OptionError, StudyError
from fedopl.client.disclosure.ledger import entry_for
from fedopl.client.disclosure.packed_ledger import EntryForms, PackedLedger, PackedLedgers
from fedopl.client.door import Door
from fedopl.client.rows import split_rule
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.engines import in_process
from fedopl.messages.codec import encode
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.refusal import RefusalCode
from fedopl.results.sums import noise_weights, term_choice
from fedopl.server import policy_comparison
from fedopl.server.aggregate import evaluation
from fedopl.server.aggregate.federated_outcomes import without_models
from fedopl.server.exchange import answers as kept_answers
from fedopl.server.exchange import conversation
from fedopl.server.exchange.answers import Answers

pytestmark = pytest.mark.usefixtures("without_figures")

KNOWN = fedopl.NuisancePlan(propensity="known")
MOST_BYTES = 5_000  # in memory, for each client
BARE = fedopl.EvaluationPlan(share=0, describe=False)


def made(name, n_rows=24):
    rng = np.random.default_rng(int(name))
    contexts, actions = rng.standard_normal((n_rows, 3)), rng.integers(0, 2, n_rows)
    rewards = contexts[:, 0] * (2 * actions - 1) + rng.standard_normal(n_rows)
    known = np.full((n_rows, 2), 0.5)
    return fedopl.LoggedData(contexts, actions, rewards, known, action_names=("a", "b"))


def names(n):
    return [f"{place:04d}" for place in range(n)]


def numbers(run):
    return run.policy.parameters.tobytes()


@pytest.fixture
def closing(monkeypatch):
    """No door stays open, and all answers of more than ten clients are in files."""
    monkeypatch.setattr(in_process, "MOST_BYTES_OPEN", 0)
    monkeypatch.setattr(conversation, "FEW_CLIENTS", 10)
    monkeypatch.setattr(kept_answers, "MOST_BYTES_KEPT", 0)


def both(n, **agreed):
    """The run of clients that are there, and of the same that are made."""
    agreed = {"basis": "linear", "nuisances": KNOWN, **agreed}
    there = fedopl.learn({name: made(name) for name in names(n)}, **agreed)
    return there, fedopl.learn(fedopl.ClientFactory(names(n), made), **agreed)


@pytest.mark.parametrize("oracle", ["csoaa-exact", "csoaa-sgd", "wap"])
def test_clients_that_are_made_learn_the_same(closing, oracle):
    plan = fedopl.TrainingPlan(rounds=3, local_steps=2, batch_size=8)
    policy = fedopl.Linear(oracle=oracle, training=plan)
    if oracle == "wap":
        policy = fedopl.Linear(oracle=oracle)
    there, later = both(15, policy=policy, evaluation=BARE)
    assert numbers(there) == numbers(later)


def test_values_and_what_clients_wrote_down_are_the_same(closing):
    there, later = both(12, evaluation=fedopl.EvaluationPlan(share=0.25, describe=True))
    assert str(there) == str(later)
    assert [*there.ledger] == [*later.ledger]
    for name, entries in there.ledger.items():
        for one, other in zip(entries, later.ledger[name], strict=True):
            assert vars(one) | {"when": ""} == vars(other) | {"when": ""}
            assert len(one.when) == len(other.when)


def test_what_was_asked_outlives_a_door(closing):
    """A door that is opened for each question still knows what was asked before."""
    study = fedopl.Study(
        actions=("a", "b"), features=("x0", "x1", "x2"), nuisances="local", evaluation=BARE
    )
    ledgers = PackedLedgers(("0000",))

    def opened(name, data, store):
        own = {"limits": fedopl.Limits.open(), "store": store, "ledger": ledgers[name]}
        return Door(name, data, study, secret="", **own)

    doors = in_process.DoorsOnDemand(fedopl.ClientFactory(["0000"], made), opened)

    def answered(exchange):
        query = replace(without_models(study), study=study.digest, exchange=exchange)
        return decoder_of(study).decode(doors["0000"].handle(encode(query)))

    assert isinstance(answered(1), ScoreSums)
    assert answered(2).reason is RefusalCode.ASKED_ALREADY


def test_a_door_that_is_opened_again_assigns_no_folds_again(closing, monkeypatch):
    assigned = []

    def counted(data, *rest, **more):
        assigned.append(data)
        return assign_folds_and_hold_out(data, *rest, **more)

    monkeypatch.setattr(split_rule, "assign_folds_and_hold_out", counted)
    there, later = both(11, evaluation=BARE)
    assert len(assigned) == 2 * 11
    assert numbers(there) == numbers(later)


def test_doors_stay_open_as_long_as_there_is_room(monkeypatch):
    made_of = []

    def make(name):
        made_of.append(name)
        return made(name)

    own = in_process.BYTES_OF_DOOR + 2 * made("0000").bytes_in_memory
    monkeypatch.setattr(in_process, "MOST_BYTES_OPEN", 5 * own)
    fedopl.learn(
        fedopl.ClientFactory(names(8), make), basis="linear", nuisances=KNOWN, evaluation=BARE
    )
    # Clients are also made to draft the study, the first one more often.
    drafted = made_of.count("0001") - 1
    assert [made_of.count(name) - drafted for name in names(8)[1:]] == [1, 1, 1, 1, 3, 3, 3]


def test_some_answers_are_in_memory_and_others_in_a_file(monkeypatch):
    def run():
        return fedopl.learn(
            fedopl.ClientFactory(names(12), made), basis="linear", nuisances=KNOWN, evaluation=BARE
        )

    in_memory = run()
    monkeypatch.setattr(conversation, "FEW_CLIENTS", 10)
    monkeypatch.setattr(kept_answers, "MOST_BYTES_KEPT", 6 * kept_answers.BYTES_OF_MESSAGE)
    monkeypatch.setattr(term_choice, "NUMBERS_STACKED", 100)
    monkeypatch.setattr(evaluation, "MOST_VALUED_ALONE", 5)
    assert numbers(run()) == numbers(in_memory)


def test_threads_change_nothing(closing):
    def run(threads):
        return fedopl.learn(
            fedopl.ClientFactory(names(30), made),
            basis="linear",
            nuisances=KNOWN,
            evaluation=BARE,
            running=fedopl.Running(threads=threads),
        )

    assert numbers(run(1)) == numbers(run(3))


def test_the_order_of_arrival_changes_no_bit(closing, monkeypatch):
    def run():
        return fedopl.learn(
            fedopl.ClientFactory(names(20), made), basis="linear", nuisances=KNOWN, personal="none"
        )

    in_order = run()
    answers = in_process.InProcess.exchange

    def shuffled(self, queries):
        found = list(answers(self, queries))
        return [found[place] for place in np.random.default_rng(0).permutation(len(found))]

    monkeypatch.setattr(in_process.InProcess, "exchange", shuffled)
    other = run()
    assert numbers(in_order) == numbers(other)
    assert str(in_order) == str(other)


def test_a_journal_goes_on(closing, tmp_path):
    def run():
        return fedopl.learn(
            fedopl.ClientFactory(names(12), made),
            basis="linear",
            nuisances=KNOWN,
            evaluation=BARE,
            running=fedopl.Running(journal=tmp_path),
        )

    assert numbers(run()) == numbers(run())


def test_memory_grows_by_little_for_each_client(closing, monkeypatch):
    """Names, where answers are, hashes, packed ledgers: no rows, scores or sums."""
    # What waits for the disk is on the disk.
    monkeypatch.setattr(packed_arrays, "MOST_UNWRITTEN", 1)
    monkeypatch.setattr(kept_answers, "MOST_IN_MEMORY", 1)
    # As if there were thousands of clients.
    monkeypatch.setattr(noise_weights, "CLIENTS_AT_ONCE", 5)
    monkeypatch.setattr(term_choice, "NUMBERS_STACKED", 100)
    for told in (evaluation, policy_comparison):
        monkeypatch.setattr(told, "MOST_VALUED_ALONE", 5)

    def peak(n):
        gc.collect()
        tracemalloc.start()
        fedopl.learn(
            fedopl.ClientFactory(names(n), made), basis="linear", nuisances=KNOWN, evaluation=BARE
        )
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(11)
    few, many = peak(20), peak(60)
    assert (many - few) / 40 < MOST_BYTES


def test_of_very_many_clients_values_are_of_all_together(closing, monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation, "MOST_VALUED_ALONE", 10)
    there = fedopl.learn(
        fedopl.ClientFactory(names(12), lambda name: made(name, 60)),
        basis="linear",
        nuisances=KNOWN,
        personal="none",
    )
    assert {row.client for row in there.values.rows} == {"global"}
    assert {row.client for row in there.gains.rows} == {"global"}
    fedopl.write_report(there, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "from 12 clients" in page
    assert "There are no values" not in page
    assert "not known what a policy is worth at one of them" in page
    there.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert str(again) == str(there)


def test_rows_have_to_be_the_same_each_time():
    times = iter(range(10**6))

    def other(name):
        return made(str(next(times)))

    factory = fedopl.ClientFactory(names(3), other)
    factory["0000"]
    with pytest.raises(DataError, match="rows of '0000' are not those that were made before"):
        factory["0000"]


def test_whether_a_client_is_there_is_known_without_making_it():
    def nobody(name):
        raise AssertionError(name)

    factory = fedopl.ClientFactory(names(3), nobody)
    doors = in_process.DoorsOnDemand(factory, nobody)
    assert all("0002" in one and "0003" not in one for one in (factory, doors))


def test_whether_an_answer_is_there_is_known_without_reading_it():
    def unread():
        raise AssertionError

    answers = Answers(0, {"north": unread})
    assert "north" in answers
    assert "south" not in answers


def test_clients_have_to_be_alike():
    def unlike(name):
        own = made(name)
        if name == "0000":
            return own
        return fedopl.LoggedData(own.contexts, own.actions, own.rewards, action_names=("a", "c"))

    with pytest.raises(StudyError, match="0001: action_names differ from those of 0000"):
        fedopl.learn(fedopl.ClientFactory(names(3), unlike), basis="linear", evaluation=BARE)


@pytest.mark.parametrize(
    ("given", "make", "why"),
    [
        ([], made, "at least one client"),
        ("0000", made, "expected the names of clients"),
        ([1], made, "expected text"),
        (["a", "b", "a"], made, "'a' comes more than once"),
        (["a"], "rows", "expected a function"),
    ],
)
def test_what_is_no_factory_is_refused(given, make, why):
    with pytest.raises(OptionError, match=why):
        fedopl.ClientFactory(given, make)


def test_what_is_no_data_is_refused():
    with pytest.raises(OptionError, match="expected LoggedData for '0000', came int"):
        fedopl.learn(fedopl.ClientFactory(names(2), int), basis="linear", evaluation=BARE)


def test_a_packed_ledger_forgets_nothing():
    forms = EntryForms()
    first, second = PackedLedger(forms), PackedLedger(forms)
    answer = Enrolment(study=b"\1" * 32, n_rows=7, rows_per_action=np.array([3.0, 4.0]))
    entry = entry_for(Enrol(study=b"\1" * 32), "ab" * 32, answer, b"content")
    first.append(entry)
    position = first.since(0)[1]
    first.append(entry)
    second.append(entry)
    assert first.entries() == [entry, entry]
    assert first.since(position)[0] == [entry]
    assert second.entries() == [entry]


def test_what_make_raises_names_the_client():
    def unusable(name):
        if name == "0003":
            raise ValueError("no such table")
        if name == "0005":
            return fedopl.LoggedData([[np.nan]], ["a"], [1.0], action_names=("a", "b"))
        return made(name)

    with pytest.raises(DataError, match=r"^0005: contexts: missing or infinite"):
        fedopl.ClientFactory(["0005"], unusable)["0005"]
    with pytest.raises(ValueError, match="no such table") as raised:
        fedopl.learn(fedopl.ClientFactory(names(4), unusable), nuisances=KNOWN, evaluation=BARE)
    assert raised.value.__notes__ == ["raised by make('0003') of a ClientFactory"]
