"""Values of each client that are read apart, where all else is added up under masks.

They have all the noise of the promise, paid from the same budget; nobody gets them from a study
that does not say so, nor twice.
"""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.base.labels import GLOBAL
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.door import Door
from fedopl.client.private.private_workspace import Noise
from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.about_masks import MaskedSums, TakeRoster, TellKeys
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.private.noised_scores import ValueApart, ValuePrivately, ValuesApart
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.privacy.accountant import mu_of_several
from fedopl.privacy.exact_noise import FINE
from fedopl.report.page import render
from fedopl.results.value_tables import LEARNED, LOGGING
from fedopl.secure.keys import Identity
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.server.federation import run_study
from fedopl.server.private_values import values_of
from fedopl.study.private.private_setting import PrivateSetting

pytestmark = pytest.mark.usefixtures("without_figures")

ACTIONS, FEATURES, NAMES = ("a", "b"), ("x0", "x1"), ("north", "south", "west")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
SIZES = {"north": 2000, "south": 1200, "west": 40}
LEVELS = {"north": 1.0, "south": -1.0, "west": 0.0}
TINY = fedopl.Limits(minimum_rows=10)
SECRETS = {name: f"known to {name} alone" for name in NAMES}


def study_with(**plan):
    policy = plan.pop("policy", "linear")
    share = plan.pop("evaluation", 0.4)
    keys = {name: Identity(PrivateDraws(0, name, SECRETS[name]).key).public for name in NAMES}
    said = {"epsilon": 4.0, "steps": 1, "aggregation": "secure", "keys": keys}
    said |= {"values_apart": 0.5} | plan
    return fedopl.Study(
        actions=ACTIONS,
        features=FEATURES,
        policy=policy,
        privacy=fedopl.PrivacyPlan(outcome=(-5, 5), ranges=RANGES, **said),
        evaluation=fedopl.EvaluationPlan(share=share),
        declared=fedopl.Declared(overlap=0.5),
    )


def rows(name, seed=0):
    rng, n_rows = np.random.default_rng([NAMES.index(name), seed]), SIZES[name]
    contexts = rng.normal(size=(n_rows, 2))
    actions = rng.integers(2, size=n_rows)
    rewards = LEVELS[name] + contexts[np.arange(n_rows), actions] + rng.normal(size=n_rows)
    chances = np.full(n_rows, 0.5)
    return fedopl.LoggedData(contexts, actions, rewards, chances, action_names=ACTIONS)


def doors_to(study, seed=0, **more):
    return {
        name: Door(name, rows(name, seed), study, secret=SECRETS[name], **more) for name in NAMES
    }


class Server:
    """Asks doors whatever it likes."""

    def __init__(self, study):
        self.study, self.doors, self.exchange = study, doors_to(study), 0

    def ask(self, name, query):
        stamped = replace(query, study=self.study.digest, exchange=self.exchange)
        return codec.decode(self.doors[name].handle(codec.encode(stamped)), axis_sizes(self.study))

    def begun(self):
        keys = [self.ask(name, TellKeys()) for name in NAMES]
        roster = TakeRoster(
            rows=np.array([self.ask(name, Enrol()).n_rows for name in NAMES], np.uint64),
            held_out=np.array([one.held_out for one in keys], np.uint64),
            keys=np.stack([one.keys for one in keys]),
            signatures=np.stack([one.signature for one in keys]),
        )
        for name in NAMES:
            assert not isinstance(self.ask(name, roster), Refusal)
        return self


def asked(study, kind=ValueApart, models=0.0):
    arms = [constant_policy(action, ACTIONS, FEATURES) for action in ACTIONS]
    return kind(models=np.full((2, 3), models), **packed(arms, study))


def refused(answer):
    return answer.reason if isinstance(answer, Refusal) else None


# --- the account ----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("unit", [{}, {"unit": "person", "most_rows_per_person": 3}], ids=str)
def test_values_apart_are_paid_from_the_budget_of_held_out_rows(share, unit):
    setting = PrivateSetting(study_with(values_apart=share, **unit))
    learned, valued = (
        [one for one in setting.releases.values() if one.of_held_out is is_held_out]
        for is_held_out in (False, True)
    )
    for spent in (learned, valued):
        assert mu_of_several(one.mu for one in spent) == pytest.approx(setting.plan.mu)
    told = [one for name, one in setting.releases.items() if name.endswith("apart")]
    assert mu_of_several([0.0, *(one.mu for one in told)]) ** 2 == pytest.approx(
        share * setting.plan.mu**2
    )


def test_what_a_client_tells_apart_moves_no_further_than_its_noise_is_for(monkeypatch):
    study = study_with()
    setting, query = PrivateSetting(study), asked(study)
    drawn = []

    def without(_self, shape, *_):
        drawn.append(_self.asked)
        return np.zeros(shape, np.int64)

    monkeypatch.setattr(Noise, "_drawn", without)
    space = doors_to(study)["north"]._space
    given = space.rows.given
    held_out = np.flatnonzero(space.rows.is_held_out)[:40]
    before = space.values_apart(query, b"")
    spent = []
    for place in held_out:
        # The row that moves most in place of one in the middle: no model, the largest outcome.
        outcomes = given.rewards.copy()
        outcomes[place] = 5.0
        other = fedopl.LoggedData(
            given.contexts, given.actions, outcomes, given.propensities, action_names=ACTIONS
        )
        after = Door("north", other, study, secret=SECRETS["north"])._space.values_apart(query, b"")
        moved = np.linalg.norm(after.sums - before.sums) / setting.deviation("values apart")
        squared = np.linalg.norm(after.squares - before.squares)
        spent.append(np.hypot(moved, squared / setting.deviation("value squares apart")))
    # Half of μ² is for what is told apart; a row that becomes nobody's moves by half of this.
    assert 0 < max(spent) <= 2 * np.sqrt(0.5) * study.privacy.mu
    assert drawn


def test_every_client_adds_all_of_the_noise_and_other_noise_than_under_masks():
    study = study_with()
    server, setting = Server(study).begun(), PrivateSetting(study)
    space = server.doors["west"]._space
    exact = space._sums_of_scores(asked(study))[0]
    apart, under_masks = [], []
    for place in range(100):
        own = asked(study, models=place * 1e-9)  # so small that scores are the same
        apart.append(space.values_apart(own, b"values apart %d" % place).sums)
        masked = space.noised_values(asked(study, ValuePrivately), b"values %d" % place)
        under_masks.append(masked.sums)
    told, hidden = np.array(apart), np.array(under_masks, float)
    assert told.std(axis=0) == pytest.approx(setting.deviation("values apart"), rel=0.25)
    assert told.mean(axis=0) == pytest.approx(exact / FINE, abs=0.5 * told.std())
    for axis in range(3):
        assert abs(np.corrcoef(told[:, axis], hidden[:, axis])[0, 1]) < 0.4


# --- a lying server -------------------------------------------------------------------------------


def test_a_server_reads_nobody_apart_in_a_study_that_does_not_say_so():
    server = Server(study_with(values_apart=0.0)).begun()
    assert refused(server.ask("north", asked(server.study))) is RefusalCode.NOT_IN_STUDY
    # Nor where there are no masks: there values are read of each anyway, once.
    plain = study_with(values_apart=0.0, aggregation="plain", keys={}, noise="local", colluders=1)
    assert refused(Server(plain).ask("north", asked(plain))) is RefusalCode.NOT_IN_STUDY
    # What it would have had: north's outcomes are about one, its own noise aside.
    said = Server(study_with(epsilon=8.0)).begun()
    told = said.ask("north", asked(said.study))
    done = values_of(said.study, told).means[-1]
    assert done == pytest.approx(LEVELS["north"], abs=0.3)


def test_a_server_reads_nobody_apart_twice_and_the_same_question_has_the_same_noise():
    server = Server(study_with()).begun()
    first = server.ask("north", asked(server.study))
    assert isinstance(first, ValuesApart)
    again = server.ask("north", asked(server.study))
    np.testing.assert_array_equal(first.sums, again.sums)
    np.testing.assert_array_equal(first.squares, again.squares)
    other = asked(server.study, models=0.1)
    assert refused(server.ask("north", other)) is RefusalCode.ASKED_ALREADY
    server.exchange = 7  # in another exchange it is another question
    assert refused(server.ask("north", asked(server.study))) is RefusalCode.ASKED_ALREADY
    # Masked values are still under masks.
    assert isinstance(server.ask("north", asked(server.study, ValuePrivately)), MaskedSums)


def test_what_few_rows_are_worth_is_not_read_apart_though_they_may_be_added_up():
    study, limits = study_with(), fedopl.Limits(minimum_rows=50)
    run = run_study(Conversation(study, InProcess(doors_to(study, limits=limits))))
    assert {row.client for row in run.values.rows} == {GLOBAL, "north", "south"}
    assert [(client, why) for _, client, why in run.refusals] == [("west", "TOO_FEW_ROWS")]
    page = render(run)
    assert "west did not report them." in page
    assert "nothing is claimed about these clients" in page


def test_a_client_that_forbids_values_tells_none_apart():
    study = study_with()
    limits = fedopl.Limits(values=False)
    with pytest.raises(fedopl.FederationError, match="VALUES_FORBIDDEN"):
        run_study(Conversation(study, InProcess(doors_to(study, limits=limits))))


# --- what it brings -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["linear", "tree", fedopl.Finite()], ids=str)
@pytest.mark.parametrize("plan", [{}, {"dropouts": 1, "colluders": 0}], ids=["all", "lacking"])
def test_every_client_that_tells_is_valued_on_no_trip_more(policy, plan):
    study = study_with(policy=policy, **plan)
    run = run_study(Conversation(study, InProcess(doors_to(study, limits=TINY))))
    assert {row.client for row in run.values.rows} == {GLOBAL, *NAMES}
    assert len(run.rounds) == expected_exchanges(study, 3)
    assert run.rounds[-1].trip + 1 == expected_trips(study, 3)
    without = study_with(policy=policy, values_apart=0.0, **plan)
    assert expected_trips(study, 3) == expected_trips(without, 3)
    page = " ".join(render(run).split())
    assert "of the variance of gains over what was done so far is noise" in page
    assert "A share of 50 % of the budget of held-out rows went to values" in page
    assert "1.41 times the noise" in page
    assert "Compared with what was done so far" in page
    assert "own policy" not in page.split('id="clients"')[1].split("<section")[0]


def test_intervals_at_clients_hold_and_know_of_their_noise():
    held, widths = 0, {name: [] for name in NAMES}
    contexts = np.random.default_rng(5).normal(size=(50_000, 2))
    for seed in range(12):
        study = study_with(epsilon=2.0)
        run = run_study(Conversation(study, InProcess(doors_to(study, seed, limits=TINY))))
        best = contexts[np.arange(50_000), run.policy.decide(contexts)].mean()
        for name in NAMES:
            found = run.values.of(LEARNED, name)
            low, high = found.interval()
            held += low <= LEVELS[name] + best <= high
            widths[name].append(high - low)
            gain = run.gains.over(LOGGING, name)
            assert gain.standard_error > 0
    assert held >= 31  # of 36 with 95 %: fewer in one of 150 tries
    assert np.median(widths["north"]) < np.median(widths["south"]) < np.median(widths["west"])


# --- what is refused in words ---------------------------------------------------------------------

WRONG = {
    "plain": (
        {"aggregation": "plain", "keys": {}, "noise": "local"},
        'values_apart: only with aggregation = "secure"',
    ),
    "nobody held out": ({"evaluation": 0.0}, "no client has values to report apart"),
    "all of it": ({"values_apart": 1.0}, "values_apart"),
    "less than nothing": ({"values_apart": -0.1}, "values_apart"),
}


@pytest.mark.parametrize(("said", "complaint"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_refused_in_words(said, complaint):
    with pytest.raises(fedopl.OptionError, match=complaint):
        study_with(**said)


def test_studies_that_say_nothing_of_it_keep_their_hash():
    # As it was before values could be read apart.
    assert "values_apart" not in str(study_with(values_apart=0.0).model_dump_json())


def test_noise_at_a_client_is_what_the_page_says():
    setting, contrast = PrivateSetting(study_with()), np.array([1.0, 0.0, -1.0])
    size = np.sqrt(contrast @ setting.noise_of_scores @ contrast)
    noise = setting.scales.half_range * setting.deviation("values apart") * size
    assert round(noise) == 26  # over held-out rows
