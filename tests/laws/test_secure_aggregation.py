"""The laws of adding up under masks: the server reads the total, and nothing less."""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.ledger import MemoryLedger
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.store import FolderStore, MemoryStore
from fedopl.client.door import Door
from fedopl.client.private.party import Party
from fedopl.client.private.private_workspace import NoiseOfOne
from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.about_masks import (
    MaskedSums,
    TakeRoster,
    TellKeys,
    flattened,
    signed_part,
    unflattened,
)
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.private.noised_sums import NoisedSums, SumPrivately, SumResiduals
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.privacy.accountant import epsilon_for
from fedopl.privacy.exact_noise import FINE
from fedopl.secure.keys import Identity, SessionKey
from fedopl.secure.masks import added_up, as_words
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.server.federation import run_study
from fedopl.study.private.private_setting import PrivateSetting

ACTIONS, FEATURES, NAMES = ("a", "b"), ("x0", "x1"), ("north", "south", "west")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
SIZES = {"north": 300, "south": 150, "west": 80}
SECRETS = {name: f"known to {name} alone" for name in NAMES}


def identity(name):
    return Identity(PrivateDraws(0, name, SECRETS[name]).key)


def study_with(**plan):
    mixture = plan.pop("mixture", "empirical")
    keys = {name: identity(name).public for name in NAMES}
    said = {"epsilon": 2.0, "steps": 2, "aggregation": "secure", "keys": keys} | plan
    privacy = fedopl.PrivacyPlan(outcome=(-5, 5), ranges=RANGES, **said)
    return fedopl.Study(
        actions=ACTIONS,
        features=FEATURES,
        privacy=privacy,
        mixture=fedopl.mixture.uniform() if mixture == "uniform" else fedopl.mixture.empirical(),
        declared=fedopl.Declared(overlap=0.3),
    )


def rows(name, seed=0):
    rng = np.random.default_rng([NAMES.index(name), seed])
    contexts = rng.normal(size=(SIZES[name], 2))
    actions = rng.integers(2, size=SIZES[name])
    rewards = contexts[np.arange(SIZES[name]), actions] + rng.normal(size=SIZES[name])
    chances = np.full(SIZES[name], 0.5)
    return fedopl.LoggedData(contexts, actions, rewards, chances, action_names=ACTIONS)


def doors_to(study, **more):
    return {
        name: Door(name, rows(name), study, secret=SECRETS[name], **more.get(name, {}))
        for name in NAMES
    }


class Server:
    """Asks doors whatever it likes, and keeps what they say."""

    def __init__(self, study=None, **more):
        self.study = study or study_with()
        self.doors = doors_to(self.study, **more)
        self.exchange = 0

    def ask(self, name, query):
        stamped = replace(query, study=self.study.digest, exchange=self.exchange)
        return codec.decode(self.doors[name].handle(codec.encode(stamped)), axis_sizes(self.study))

    def roster(self):
        enrolled = [self.ask(name, Enrol()) for name in NAMES]
        keys = [self.ask(name, TellKeys()) for name in NAMES]
        return TakeRoster(
            rows=np.array([one.n_rows for one in enrolled], np.uint64),
            held_out=np.array([one.held_out for one in keys], np.uint64),
            keys=np.stack([one.keys for one in keys]),
            signatures=np.stack([one.signature for one in keys]),
        )

    def begun(self):
        roster = self.roster()
        for name in NAMES:
            assert not isinstance(self.ask(name, roster), Refusal)
        self.exchange = 1
        return self

    def masked(self, query):
        self.exchange += 1
        answers = {name: self.ask(name, query) for name in NAMES}
        assert {type(one) for one in answers.values()} == {MaskedSums}
        return {name: one.numbers for name, one in answers.items()}


def refused(answer):
    return answer.reason if isinstance(answer, Refusal) else None


STEP = SumResiduals(number=0, n_terms=2, parameters=np.zeros((2, 3)))


# --- the total is right, and is all there is ------------------------------------------------------


@pytest.mark.parametrize("mixture", ["empirical", "uniform"])
def test_masked_sums_add_up_to_the_sum_of_all_to_the_last_bit(mixture):
    server = Server(study_with(mixture=mixture)).begun()
    for query in (SumPrivately(), STEP):
        masked = server.masked(query)
        plain = {}
        for name, door in server.doors.items():
            answer = door._computed(replace(query, study=server.study.digest))
            plain[name] = flattened(query, answer, server.study)
        total = sum(plain.values())
        assert total.dtype == np.int64
        np.testing.assert_array_equal(added_up(masked.values()), total)
        # Nobody's own is near what it sends, and two of three do not add up to anything.
        for name in NAMES:
            others = added_up(own for other, own in masked.items() if other != name)
            expected = total - plain[name]
            assert not (others == expected).any()
            assert not (masked[name].view(np.int64) == plain[name]).any()
            assert np.abs(masked[name].view(np.int64).astype(float)).mean() > 2.0**60


def test_without_noise_the_total_is_that_of_rows_whatever_masks_there_are(monkeypatch):
    monkeypatch.setattr(NoiseOfOne, "_drawn", lambda _self, shape, *_: np.zeros(shape, np.int64))
    server = Server().begun()
    sums = added_up(server.masked(SumPrivately()).values())
    total = unflattened(SumPrivately(), sums, server.study, FINE).squares
    spaces = [door._space for door in server.doors.values()]
    n_rows = sum(space.n_training for space in spaces)
    assert total[:, -1, -1].sum() <= n_rows  # rows far out count for less
    assert total[:, -1, -1].sum() > 0.7 * n_rows


def test_the_same_query_has_the_same_answer_and_another_has_other_masks():
    server = Server().begun()
    first = server.masked(STEP)["north"]
    server.exchange -= 1
    np.testing.assert_array_equal(server.masked(STEP)["north"], first)
    other = server.masked(replace(STEP, number=1))["north"]
    # Were the masks the same, the difference would be of sums: small beside 2⁶³.
    difference = (other - first).view(np.int64).astype(float)
    assert np.abs(difference).min() > 2.0**45


def test_every_client_adds_its_part_of_noise_and_all_of_it_together_is_enough():
    study = study_with()
    plan, deviation = study.privacy, PrivateSetting(study).deviation("squares")
    together = Server(study).begun().doors["north"]._space.party.together
    own = together.own_deviation(deviation)
    # Without the one that tells the server all, the others' noise is what is promised.
    assert np.sqrt(len(NAMES) - plan.colluders) * own == pytest.approx(deviation)
    noise = Server(study).begun().doors["north"]._space.noise(b"noise")
    drawn = noise.added(np.zeros(5000), deviation, "x") / FINE
    assert np.std(drawn) == pytest.approx(own, rel=0.05)


def test_a_client_against_whom_all_collude_has_the_promise_that_is_said():
    plan = study_with().privacy
    assert plan.mu_alone == pytest.approx(plan.mu * np.sqrt(2))
    assert epsilon_for(plan.mu_alone, plan.delta) > plan.epsilon
    local = study_with(noise="local").privacy
    assert local.mu_alone == local.mu


# --- attacks of a lying server --------------------------------------------------------------------


def test_a_server_between_two_clients_is_refused():
    server = Server()
    honest = server.roster()
    own = SessionKey(b"s" * 32, b"of the server")
    keys = honest.keys.copy()
    keys[1, 0] = as_words(own.public)
    assert refused(server.ask("north", replace(honest, keys=keys))) is RefusalCode.WRONG_ROSTER
    # Nor does a signature of its own help, or that of another client, study or number of rows.
    signatures = honest.signatures.copy()
    content = signed_part(server.study, "south", (1, 1), keys[1])
    signatures[1] = as_words(Identity(b"s" * 32).signed(content))
    forged = replace(honest, keys=keys, signatures=signatures)
    assert refused(server.ask("north", forged)) is RefusalCode.WRONG_ROSTER
    swapped = replace(honest, keys=honest.keys[[0, 2, 1]], signatures=honest.signatures[[0, 2, 1]])
    assert refused(server.ask("north", swapped)) is RefusalCode.WRONG_ROSTER
    more = replace(honest, rows=honest.rows + np.array([0, 5, 0], np.uint64))
    assert refused(server.ask("north", more)) is RefusalCode.WRONG_ROSTER
    assert refused(server.ask("north", STEP)) is RefusalCode.NO_ROSTER
    assert refused(server.ask("north", honest)) is None


@pytest.mark.parametrize("changed", [0, 1 << 63], ids=["the same", "written otherwise"])
def test_a_colluder_that_tells_the_key_of_another_for_its_own_takes_no_mask_off(changed):
    # With the same key, masks of south with north and with west would be the same, and cancel.
    server = Server()
    honest = server.roster()
    counts, keys = (int(honest.rows[0]), int(honest.held_out[0])), honest.keys.copy()
    keys[0] = keys[2]
    keys[0, 0, -1] |= np.uint64(changed)  # X25519 does not look at the last bit
    signatures = honest.signatures.copy()
    signatures[0] = as_words(
        identity("north").signed(signed_part(server.study, "north", counts, keys[0]))
    )
    assert refused(server.ask("south", replace(honest, keys=keys, signatures=signatures))) is None
    masked = server.ask("south", SumPrivately()).numbers.view(np.int64)
    own = server.doors["south"]._space.first_sums
    plain = flattened(SumPrivately(), own, server.study)
    assert not (masked == plain).any()
    assert np.abs(masked.astype(float)).mean() > 2.0**60


def test_a_second_roster_is_refused_also_after_a_restart(tmp_path):
    ledger, store = MemoryLedger(), FolderStore(tmp_path)
    more = {"north": {"ledger": ledger, "store": store}}
    server = Server(**more).begun()
    first = server.masked(STEP)["north"]
    # South was started with other rows, so it has other keys, which it signs.
    changed = Door("south", rows("south", 9), server.study, secret=SECRETS["south"])
    again = Server(server.study, **more)
    again.doors["south"] = changed
    assert refused(again.ask("north", again.roster())) is RefusalCode.ASKED_ALREADY
    # And the client goes on with the roster that it took.
    again.exchange = server.exchange
    np.testing.assert_array_equal(again.ask("north", STEP).numbers, first)


def test_rows_that_changed_have_no_mask_of_before():
    store = MemoryStore()
    server = Server(north={"store": store}).begun()
    server.masked(STEP)
    changed = Door("north", rows("north", 5), server.study, secret=SECRETS["north"], store=store)
    server.doors["north"] = changed
    assert refused(server.ask("north", STEP)) is RefusalCode.WRONG_ROSTER


def test_a_step_of_the_same_number_is_asked_once_more_and_no_mask_is_used_twice():
    server = Server().begun()
    one = server.masked(STEP)["west"]
    two = server.masked(replace(STEP, parameters=STEP.parameters + 1))["west"]
    assert np.abs((two - one).view(np.int64).astype(float)).min() > 2.0**45
    third = replace(STEP, parameters=STEP.parameters + 2)
    assert refused(server.ask("west", third)) is RefusalCode.ASKED_ALREADY


def test_a_client_whose_key_is_not_registered_says_so():
    server = Server()
    stranger = Door("north", rows("north"), server.study, secret="another")
    server.doors["north"] = stranger
    assert refused(server.ask("north", TellKeys())) is RefusalCode.WRONG_KEY


# --- who is not there, and who lies ---------------------------------------------------------------


class Losing(InProcess):
    """A transport on which a client does not answer from some trip on."""

    def __init__(self, doors, client, trip):
        super().__init__(doors)
        self.client, self.trip, self.seen = client, trip, 0

    def exchange(self, queries):
        for name, answer in super().exchange(queries):
            if name != self.client or self.seen < self.trip:
                yield name, answer
        self.seen += 1


@pytest.mark.parametrize("trip", range(5))
def test_a_client_that_drops_out_stops_the_run_and_when_it_is_back_the_run_goes_on(tmp_path, trip):
    study, stores = study_with(), {name: {"store": MemoryStore()} for name in NAMES}
    ledgers = {name: MemoryLedger() for name in NAMES}
    more = {name: {**stores[name], "ledger": ledgers[name]} for name in NAMES}
    losing = Losing(doors_to(study, **more), "west", trip)
    with pytest.raises(fedopl.FederationError, match="west: no answer") as stopped:
        run_study(Conversation(study, losing, Journal(tmp_path)))
    assert "nothing can be read from any client" in str(stopped.value)
    back = run_study(Conversation(study, InProcess(doors_to(study, **more)), Journal(tmp_path)))
    never_away = run_study(Conversation(study, InProcess(doors_to(study))))
    np.testing.assert_array_equal(back.policy.parameters, never_away.policy.parameters)
    assert str(back.values) == str(never_away.values)


def test_a_total_that_cannot_be_true_stops_the_run_and_says_that_nobody_knows_whose_it_is(
    monkeypatch,
):
    honest = Door._computed

    def lying(door, query):
        found = honest(door, query)
        if door.name == "west" and isinstance(found, NoisedSums):
            return replace(found, products=found.products + 2**50)
        return found

    monkeypatch.setattr(Door, "_computed", lying)
    study = study_with()
    doors = doors_to(study)
    # An honest client's program looks at its own sums before they are masked.
    with pytest.raises(fedopl.FederationError, match=r"west refused \(FAILED\)"):
        run_study(Conversation(study, InProcess(doors)))
    assert "IMPOSSIBLE_SUMS" in [entry.why for entry in doors["west"].ledger.entries()]
    monkeypatch.setattr(Party, "_check_sums", lambda *_: None)
    with pytest.raises(fedopl.FederationError, match="masks hide which one"):
        run_study(Conversation(study, InProcess(doors_to(study))))


def test_a_client_that_is_not_in_the_study_is_named():
    study = study_with()
    doors = doors_to(study)
    doors["east"] = Door("east", rows("west"), study, secret="of east")
    with pytest.raises(fedopl.FederationError, match="east has no key in it"):
        run_study(Conversation(study, InProcess(doors)))
    del doors["east"], doors["west"]
    with pytest.raises(fedopl.FederationError, match="west is not there"):
        run_study(Conversation(study, InProcess(doors)))


WRONG = {
    "two clients": ({"keys": {n: identity(n).public for n in NAMES[:2]}}, "fewer than 3 clients"),
    "no keys": ({"keys": {}}, "every client's public key"),
    "no key": ({"keys": {**{n: identity(n).public for n in NAMES}, "west": "abc"}}, "64 digits"),
    "twice": ({"keys": dict.fromkeys(NAMES, identity("north").public)}, "the same key"),
    "colluders": ({"colluders": 2}, "at most 1 may collude"),
    "plain": ({"aggregation": "plain", "keys": {}, "noise": "total"}, 'aggregation = "secure"'),
}


@pytest.mark.parametrize(("said", "complaint"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_refused_in_words(said, complaint):
    with pytest.raises(fedopl.OptionError, match=complaint):
        study_with(**said)
