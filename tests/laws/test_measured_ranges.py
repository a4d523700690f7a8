"""The laws of ranges that are measured first: for a tenth of the promise, once."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.ledger import FileLedger, summaries
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.client.private.private_answers import measure_numbers
from fedopl.client.private.private_workspace import Noise, PrivateWorkspace
from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.about_masks import TakeRoster, TellKeys
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.private.noised_sums import (
    MeasureNumbers,
    NoisedMoments,
    NoisedSums,
    RangesTaken,
    SumPrivately,
    TakeRanges,
)
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.sensitivity import declared_moves
from fedopl.messages.vocabulary import queries_of
from fedopl.privacy.accountant import mu_of_several
from fedopl.privacy.exact_noise import FINE
from fedopl.secure.keys import Identity
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.server.federation import run_study
from fedopl.study.private.private_setting import PrivateSetting, with_ranges

NAMES, ACTIONS, FEATURES = ("east", "mid", "north", "west"), ("a", "b"), ("x0", "x1", "member")
# Numbers are about 3 ± 1; a flag has no range to measure.
WIDE = {"x0": (-40.0, 40.0), "x1": (0.0, 100.0)}


def secret_of(name):
    return f"known to {name} alone"


def study_with(**plan):
    said = {"epsilon": 4.0, "steps": 1, "scales": "measured", "ranges": WIDE, "outcome": (-9, 9)}
    if plan.get("aggregation") == "secure":
        keys = {n: Identity(PrivateDraws(0, n, secret_of(n)).key).public for n in NAMES}
        plan = {"keys": keys, **plan}
    privacy = fedopl.PrivacyPlan(**(said | {"ranges": WIDE | {"member": (0.0, 1.0)}} | plan))
    declared = fedopl.Declared(overlap=0.3)
    return fedopl.Study(actions=ACTIONS, features=FEATURES, privacy=privacy, declared=declared)


def rows(name, n_rows=400, moved=0.0):
    rng = np.random.default_rng(NAMES.index(name))
    contexts, actions = rng.normal(3, 1, size=(n_rows, 3)), rng.integers(2, size=n_rows)
    contexts[:, 2] = rng.integers(2, size=n_rows)
    contexts = contexts + moved
    rewards = contexts[np.arange(n_rows), actions] + rng.normal(size=n_rows) - 3
    chances = np.full(n_rows, 0.5)
    return fedopl.LoggedData(
        contexts, actions, rewards, chances, action_names=ACTIONS, feature_names=FEATURES
    )


def door_to(name, study, folder=None, **own):
    if folder is not None:
        own |= {"store": FolderStore(folder / name), "ledger": FileLedger(folder / f"{name}.jsonl")}
    return Door(name, rows(name), study, secret=secret_of(name), **own)


class Losing(InProcess):
    """A transport on which some do not answer on some trips, and everybody begins anew on each."""

    def __init__(self, study, folder, lost=None):
        super().__init__({name: door_to(name, study, folder) for name in NAMES})
        self.study, self.folder, self.lost, self.trip = study, folder, lost or {}, 0

    def exchange(self, queries):
        self.doors = {name: door_to(name, self.study, self.folder) for name in NAMES}
        answers = list(super().exchange(queries))
        lost = self.lost.get(self.trip, ())
        self.trip += 1
        yield from ((name, answer) for name, answer in answers if name not in lost)


def asked(door, study, query):
    content = codec.encode(replace(query, study=study.digest))
    return codec.decode(door.handle(content), axis_sizes(study))


def reason(answer):
    return answer.reason if isinstance(answer, Refusal) else None


# --- what is found --------------------------------------------------------------------------------

KINDS = {
    "plain": {},
    "secure": {"aggregation": "secure"},
    "lacking": {"aggregation": "secure", "dropouts": 1},
}


@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)
def test_ranges_are_found_and_restarts_change_nothing(tmp_path, plan):
    study = study_with(**plan)
    record = run_study(Conversation(study, Losing(study, tmp_path)))
    found = record.study.privacy
    for name in WIDE:
        low, high = found.ranges[name]
        declared = WIDE[name][1] - WIDE[name][0]
        assert abs((low + high) / 2 - 3) < 0.05 * declared
        assert high - low < declared / 2
    assert found.ranges["member"] == (0.0, 1.0)
    assert record.study.before_screening == study
    memory = InProcess({name: door_to(name, study) for name in NAMES})
    again = run_study(Conversation(study, memory))
    np.testing.assert_array_equal(record.policy.parameters, again.policy.parameters)
    assert str(record.values) == str(again.values)
    for one in (study, record.study):
        assert len(record.rounds) == expected_exchanges(one, len(NAMES))
        assert record.rounds[-1].trip + 1 == expected_trips(one, len(NAMES))


@pytest.mark.parametrize("kind", ["linear", "tree", "csoaa-sgd", "finite"])
def test_every_kind_of_policy_is_learned_in_the_units_that_are_found(kind):
    policies = {
        "linear": {},
        "tree": {"policy": "tree"},
        "csoaa-sgd": {"policy": fedopl.Linear(oracle="csoaa-sgd", training={"rounds": 3})},
        "finite": {"policy": fedopl.Finite()},
    }
    plan = {"steps": 1 if kind == "linear" else 4}
    run = fedopl.learn(
        {name: rows(name) for name in NAMES[:2]},
        privacy=study_with(epsilon=8.0, **plan).privacy,
        declared=fedopl.Declared(overlap=0.3),
        running=fedopl.Running(secret="of this test"),
        **policies[kind],
    )
    assert run.study.privacy.declared_ranges == WIDE | {"member": (0.0, 1.0)}
    assert run.study.privacy.ranges["x1"][1] < 40


def test_who_is_lacking_when_ranges_are_told_is_told_them_later(tmp_path):
    study = study_with(aggregation="secure", dropouts=1)
    # Trips: keys, shares, then two for each sum; of the first sum ranges are found.
    losing = Losing(study, tmp_path, {2: {"east"}, 4: {"west"}})
    record = run_study(Conversation(study, losing))
    assert [names for _, _, names in record.lacking] == [["east"], ["west"]]
    assert record.rounds[-2].answered == NAMES


# --- what is promised -----------------------------------------------------------------------------


def test_no_row_moves_what_ranges_are_found_from_further_than_declared(monkeypatch):
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)
    study, rng = study_with(), np.random.default_rng(1)
    draws = PrivateDraws(0, "east", secret_of("east"))
    furthest = {"sums": 0.0, "squares": 0.0}
    for trial in range(100):
        scale = 10.0 ** rng.integers(-2, 7)
        data = rows("east", 30, moved=scale * rng.normal(size=3) * (trial % 5 > 0))
        told = []
        space = PrivateWorkspace(data, study, Limits.open(), draws)
        row = int(np.flatnonzero(~space.rows.is_held_out)[0])
        for is_there in (True, False):
            space.rows.__dict__["_is_used"] = np.arange(data.n_rows) != (-1 if is_there else row)
            told.append(measure_numbers(space, MeasureNumbers()))
        for name in furthest:
            moved = np.linalg.norm(getattr(told[0], name) - getattr(told[1], name))
            most = declared_moves(NoisedMoments)[name].at_most(study)
            assert moved <= most * (1 + 1e-9)
            furthest[name] = max(furthest[name], moved / most)
    assert min(furthest.values()) > 0.99


@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)
def test_all_that_leaves_costs_what_is_promised_and_a_tenth_is_for_ranges(plan):
    study = study_with(**plan)
    after = with_ranges(study, {"x0": (0.0, 6.0), "x1": (1.0, 5.0)})
    for one in (study, after):
        setting = PrivateSetting(one)
        learned = [own.mu for own in setting.releases.values() if not own.of_held_out]
        assert mu_of_several(learned) == pytest.approx(setting.plan.mu)
    first = [PrivateSetting(study).releases[name].mu for name in ("means", "spreads")]
    own = 0.9 if plan else 1.0  # under masks, some is kept at home
    assert mu_of_several(first) ** 2 == pytest.approx(0.1 * own * study.privacy.mu**2)
    before = PrivateSetting(study).releases
    assert {name: own.deviation for name, own in PrivateSetting(after).releases.items()} == {
        name: own.deviation for name, own in before.items()
    }


def test_rows_are_held_out_as_before_so_that_none_is_in_both():
    study = study_with()
    after = with_ranges(study, {"x0": (0.0, 6.0), "x1": (1.0, 5.0)})
    held_out = [door_to("east", one)._space.rows.is_held_out for one in (study, after)]
    np.testing.assert_array_equal(*held_out)


def test_a_study_is_paid_for_once_whatever_ranges_are_found(tmp_path):
    study = study_with()
    limits = Limits(epsilon=4.0, minimum_rows=1)  # as much as the study promises, and no more
    doors = {name: door_to(name, study, tmp_path, limits=limits) for name in NAMES}
    run_study(Conversation(study, InProcess(doors)))
    (summary,) = summaries(FileLedger(tmp_path / "east.jsonl").entries())
    assert summary.study == study.digest.hex()
    assert summary.privacy == pytest.approx(study.privacy.mu)
    other = study.model_copy(update={"seed": 1})
    door = door_to("east", other, tmp_path, limits=limits)
    assert reason(asked(door, other, MeasureNumbers())) is RefusalCode.PRIVACY_SPENT


# --- attacks of a lying server --------------------------------------------------------------------


def gone_on(study, low):
    found = with_ranges(study, {"x0": (low, low + 6), "x1": (1.0, 5.0)})
    return found, TakeRanges.of(found)


def test_two_sets_of_ranges_would_have_two_sets_of_sums_and_the_second_is_refused(tmp_path):
    study = study_with()
    door = door_to("east", study, tmp_path)
    first, second = gone_on(study, 0.0), gone_on(study, 0.5)
    assert isinstance(asked(door, first[0], first[1]), RangesTaken)
    assert isinstance(asked(door, first[0], SumPrivately()), NoisedSums)
    for restarted in (False, True):
        door = door_to("east", study, tmp_path) if restarted else door
        for query in (second[1], SumPrivately()):
            assert reason(asked(door, second[0], query)) is RefusalCode.WRONG_STUDY
    # Not even if it forgot with which it went on: the ledger has it.
    shutil.rmtree(tmp_path / "east")
    door = door_to("east", study, tmp_path)
    for query in (second[1], SumPrivately()):
        assert reason(asked(door, second[0], query)) is RefusalCode.ASKED_ALREADY
    assert reason(asked(door, study, Enrol())) is None  # which tells nothing of rows


def test_nothing_is_told_before_ranges_are_known_nor_ranges_after():
    study = study_with()
    door = door_to("east", study)
    assert queries_of(study) == {Enrol, MeasureNumbers}
    assert reason(asked(door, study, SumPrivately())) is RefusalCode.NOT_IN_STUDY
    after, take = gone_on(study, 0.0)
    assert reason(asked(door, after, replace(take, ranges=take.ranges[::-1]))) is not None
    assert isinstance(asked(door, after, take), RangesTaken)
    assert reason(asked(door, after, MeasureNumbers())) is RefusalCode.NOT_IN_STUDY


def test_who_takes_part_is_agreed_on_once_under_masks():
    study = study_with(aggregation="secure", dropouts=1)
    after, take = gone_on(study, 0.0)
    assert {TellKeys, TakeRoster} < queries_of(study)
    assert not {TellKeys, TakeRoster} & queries_of(after)
    door = door_to("east", study)
    assert isinstance(asked(door, after, take), RangesTaken)
    assert reason(asked(door, after, TellKeys())) is RefusalCode.NOT_IN_STUDY


WRONG_RANGES = ((2.0, 2.0), (3.0, 1.0), (0.0, 1e300), (3.0, 3.0 + 1e-9), (0.0, 1e-310), (90, 99))


@pytest.mark.parametrize("wrong", WRONG_RANGES)
def test_ranges_that_do_not_follow_from_those_declared_are_refused_before_a_row_is_touched(wrong):
    study = study_with()
    after, take = gone_on(study, 0.0)
    bad = replace(take, ranges=np.array([wrong, (1.0, 5.0)]))
    assert bad.study_after(study) is None
    # Not even under the hash that such a study would have.
    plan = study.privacy.model_copy(
        update={"ranges": study.privacy.ranges | {"x0": wrong}, "declared_ranges": WIDE}
    )
    lying = study.model_copy(update={"privacy": plan})
    for one in (after, lying):
        assert reason(asked(door_to("east", study), one, bad)) is RefusalCode.WRONG_STUDY


# --- bad settings ---------------------------------------------------------------------------------

WRONG = {
    "flags": ({"ranges": {"x0": (0, 1), "x1": (0, 1), "member": (0, 1)}}, "no number whose range"),
    "filled in": ({"scales": "declared", "declared_ranges": WIDE}, "a run fills it in"),
    "misspelt": ({"scales": "guessed"}, "scales"),
}


@pytest.mark.parametrize(("said", "complaint"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_refused_in_words(said, complaint):
    with pytest.raises(fedopl.OptionError, match=complaint):
        study_with(**said)
