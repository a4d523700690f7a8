"""The laws of sums under masks from which clients may be lacking: of those who stayed, no less."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.ledger import FileLedger
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.client.private import private_rows
from fedopl.client.private.party import Party
from fedopl.client.private.private_rows import drawn_by_content
from fedopl.client.private.private_workspace import NoiseOfOne
from fedopl.engines.in_process import InProcess
from fedopl.messages import about_masks, codec
from fedopl.messages.about_masks import (
    ShareSecrets,
    TakeRoster,
    TellKeys,
    Unmask,
    flattened,
    seed_label,
    signed_part,
)
from fedopl.messages.bundle import bundled, unbundled
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.private.noised_sums import ResidualSums, SumPrivately, SumResiduals
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.results.value_tables import LEARNED
from fedopl.secure.keys import Identity, SessionKey
from fedopl.secure.masks import (
    OWN_MASK,
    SEED_KEY,
    as_bytes,
    as_words,
    secret_of,
    stream,
    sum_seed,
    unsealed,
    without_pair_masks,
)
from fedopl.secure.neighbours import Holding
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.server.federation import run_study
from fedopl.server.unmasking import Unmasking
from fedopl.study.private.private_setting import PrivateSetting

NAMES = ("east", "mid", "north", "south", "west")
SIZES = dict(zip(NAMES, (90, 240, 300, 150, 80), strict=True))
ACTIONS, FEATURES = ("a", "b"), ("x0", "x1")
FIRST_SUM, LAST = 2, 7  # trips: keys, shares, then two for each of three sums


def secret_of_client(name):
    return f"known to {name} alone"


def study_with(names=NAMES, **plan):
    mixture = plan.pop("mixture", "uniform")
    keys = {
        name: Identity(PrivateDraws(0, name, secret_of_client(name)).key).public for name in names
    }
    said = {"epsilon": 4.0, "steps": 1, "aggregation": "secure", "dropouts": 1, "keys": keys}
    privacy = fedopl.PrivacyPlan(
        outcome=(-5, 5), ranges=dict.fromkeys(FEATURES, (-2.0, 2.0)), **(said | plan)
    )
    return fedopl.Study(
        actions=ACTIONS,
        features=FEATURES,
        privacy=privacy,
        mixture=fedopl.mixture.as_mixture(mixture),
        declared=fedopl.Declared(overlap=0.3),
    )


def rows(name):
    rng = np.random.default_rng(NAMES.index(name))
    n_rows = SIZES[name]
    contexts, actions = rng.normal(size=(n_rows, 2)), rng.integers(2, size=n_rows)
    rewards = contexts[np.arange(n_rows), actions] + rng.normal(size=n_rows)
    chances = np.full(n_rows, 0.5)
    return fedopl.LoggedData(contexts, actions, rewards, chances, action_names=ACTIONS)


def door_to(name, study, folder=None):
    kept = {}
    if folder is not None:
        kept = {"store": FolderStore(folder / name), "ledger": FileLedger(folder / f"{name}.jsonl")}
    return Door(name, rows(name), study, secret=secret_of_client(name), **kept)


class Losing(InProcess):
    """A transport on which some do not answer on some trips; clients may begin anew with each."""

    def __init__(self, study, lost=None, *, first=0, folder=None, turned=False):
        super().__init__({name: door_to(name, study, folder) for name in NAMES})
        self.study, self.folder, self.turned = study, folder, turned
        self.lost, self.trip = lost or {}, first

    def exchange(self, queries):
        if self.folder is not None:
            self.doors = {name: door_to(name, self.study, self.folder) for name in NAMES}
        answers = list(super().exchange(queries))
        lost = self.lost.get(self.trip, ())
        self.trip += 1
        for name, answer in reversed(answers) if self.turned else answers:
            if name not in lost:
                yield name, answer


@dataclass
class Killed(Journal):
    """The journal of a server that is gone once clients have answered on some trip."""

    at: int = 0

    def keep(self, trip, queries, replies):
        if trip == self.at:
            raise KeyboardInterrupt
        super().keep(trip, queries, replies)


def ran(study, transport, folder=None):
    return run_study(Conversation(study, transport, Journal(folder)))


@pytest.fixture
def totals(monkeypatch):
    """Every total that is read, with what those it is over would have added up to."""
    read, found = Unmasking.total, []

    def listening(unmasking, query, answers):
        numbers, stayed = read(unmasking, query, answers)
        conversation = unmasking.conversation
        plain = [
            flattened(
                query,
                conversation.transport.doors[name]._computed(
                    replace(query, study=conversation.study.digest)
                ),
                conversation.study,
            )
            for name in stayed
        ]
        np.testing.assert_array_equal(numbers, sum(plain))
        found.append(stayed)
        return numbers, stayed

    monkeypatch.setattr(Unmasking, "total", listening)
    return found


# --- the sum of those who stayed ------------------------------------------------------------------


@pytest.mark.parametrize("trip", range(LAST + 1))
def test_whoever_is_lacking_at_one_point_the_sum_is_that_of_the_others_to_the_last_bit(
    totals, trip
):
    study = study_with(mixture="uniform" if trip % 2 else "empirical")
    if trip < FIRST_SUM:
        with pytest.raises(fedopl.FederationError, match="west: no answer"):
            ran(study, Losing(study, {trip: {"west"}}))
        return
    record = ran(study, Losing(study, {trip: {"west"}}))
    others = tuple(name for name in NAMES if name != "west")
    at = (trip - FIRST_SUM) // 2
    # Who is lacking after it answered is counted, and who was lacking once is there again.
    assert totals == [others if place == at and trip % 2 == 0 else NAMES for place in range(3)]
    assert len(record.rounds) == 4 + 2 * 3
    assert record.rounds[-1].trip == LAST  # 2m + 2 trips
    assert sum(record.mixture.values()) == pytest.approx(1)
    assert set(record.mixture) == set(totals[0])
    asked = ("SumPrivately", "SumResiduals", "ValuePrivately")[at]
    assert record.lacking == (((2 + trip, asked, ["west"]),) if trip % 2 == 0 else ())


def test_several_are_lacking_at_all_points_of_a_sum_and_order_and_restarts_change_nothing(
    totals, tmp_path
):
    study = study_with(dropouts=2, colluders=0)
    lost = {2: {"east"}, 3: {"west"}, 4: {"mid", "north"}, 6: {"south"}, 7: {"east"}}
    record = ran(study, Losing(study, lost))
    without = [{"east"}, {"mid", "north"}, {"south"}]
    assert [set(NAMES) - set(stayed) for stayed in totals] == without
    other = ran(study, Losing(study, lost, folder=tmp_path, turned=True))
    np.testing.assert_array_equal(record.policy.parameters, other.policy.parameters)
    assert str(record.values) == str(other.values)
    # Whoever is lacking changes who is counted: that of the mixture over the others.
    assert record.mixture == {name: 0.25 for name in NAMES if name != "east"}
    everybody = ran(study, Losing(study))
    assert (everybody.policy.parameters != record.policy.parameters).any()


def test_with_a_few_neighbours_on_a_ring_it_is_the_same(monkeypatch, totals):
    # Two neighbours each, and two of three shares: as with more than a hundred clients.
    monkeypatch.setattr(about_masks, "holding_of", lambda *_: Holding(2, 2))
    study = study_with(epsilon=3.5)
    losing = Losing(study, {2: {"west"}, 5: {"mid"}})
    record = ran(study, losing)
    assert totals == [NAMES[:-1], NAMES, NAMES]
    shares = losing.doors["mid"]._space.party.sealed().shares
    assert shares.shape == (3, 2 * 3, 6)
    assert record.lacking == ((4, "SumPrivately", ["west"]),)


@pytest.mark.parametrize("mixture", ["uniform", "empirical"])
def test_who_is_lacking_in_all_sums_is_not_counted_as_if_it_were_none_of_the_study(
    monkeypatch, mixture
):
    # Draws alone differ from study to study; noise of totals is as large in both.
    monkeypatch.setattr(NoiseOfOne, "_drawn", lambda _self, shape, *_: np.zeros(shape, np.int64))

    def draws(data, _key, *more):
        return drawn_by_content(data, b"in any study", *more)

    monkeypatch.setattr(private_rows, "drawn_by_content", draws)
    study = study_with(mixture=mixture)
    away = ran(study, Losing(study, {trip: {"mid"} for trip in range(FIRST_SUM, LAST + 1)}))
    others = [name for name in NAMES if name != "mid"]
    study = study_with(others, mixture=mixture, dropouts=0)
    alone = ran(study, InProcess({name: door_to(name, study) for name in others}))
    np.testing.assert_allclose(away.policy.parameters, alone.policy.parameters, rtol=1e-9)
    values = [run.values.of(LEARNED).value for run in (away, alone)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)  # whole weights round otherwise
    # Noise is by the row that counts most in the study, which mid's is in held-out rows of the one.
    assert (str(away.values) == str(alone.values)) == (mixture == "uniform")
    assert away.mixture == pytest.approx(alone.mixture)
    assert away.rows == alone.rows


def test_each_adds_enough_noise_for_the_promise_without_those_lacking_and_colluding():
    study = study_with()
    door = Server(study).begun().doors["north"]
    own = door._space.party.together.own_deviation(1.0)
    honest = len(NAMES) - study.privacy.colluders - study.privacy.dropouts
    assert own * np.sqrt(honest) == pytest.approx(1.0)
    together = door._space.party.together.over(NAMES[1:])
    assert together.noise == pytest.approx(own * np.sqrt(len(NAMES) - 1))


# --- the run stops with a word, and goes on -------------------------------------------------------


@pytest.mark.parametrize("trip", [1, 2, 3, 6, 7])
def test_more_lacking_than_promised_stop_the_run_which_goes_on_with_all_to_the_same(tmp_path, trip):
    study, journal = study_with(), tmp_path / "journal"
    clients = tmp_path / "clients"
    losing = Losing(study, {trip: {"west", "south"}}, folder=clients)
    with pytest.raises(fedopl.FederationError, match="west: no answer") as stopped:
        ran(study, losing, journal)
    assert "nothing can be read from any client. Resume" in str(stopped.value)
    back = ran(study, Losing(study, folder=clients, first=trip), journal)
    never_away = ran(study, Losing(study))
    np.testing.assert_array_equal(back.policy.parameters, never_away.policy.parameters)
    assert str(back.values) == str(never_away.values)


@pytest.mark.parametrize("trip", [2, 3])
def test_a_killed_server_goes_on_whoever_is_lacking_then(totals, tmp_path, trip):
    study, journal = study_with(), tmp_path / "journal"
    transport = Losing(study, folder=tmp_path / "clients")
    with pytest.raises(KeyboardInterrupt):
        run_study(Conversation(study, transport, Killed(journal, at=trip)))
    # Before anybody helped to take masks off, the sum is of who answers now; after that, of all.
    losing = Losing(study, {trip: {"west"}}, folder=tmp_path / "clients", first=trip)
    ran(study, losing, journal)
    assert totals[0] == (NAMES if trip == 3 else NAMES[:-1])


def test_a_run_that_begins_anew_with_others_stops_with_a_word(tmp_path):
    study = study_with()
    ran(study, Losing(study, folder=tmp_path))
    ran(study, Losing(study, folder=tmp_path))  # with the same ones
    with pytest.raises(fedopl.FederationError, match="begins anew needs the same clients"):
        ran(study, Losing(study, {2: {"west"}}, folder=tmp_path))


# --- attacks of a lying server --------------------------------------------------------------------


class Server:
    """Asks doors whatever it likes, and keeps what they say."""

    def __init__(self, study=None, folder=None):
        self.study, self.folder, self.exchange = study or study_with(), folder, 0
        self.doors = {name: door_to(name, self.study, folder) for name in NAMES}

    def restarted(self, name):
        self.doors[name] = door_to(name, self.study, self.folder)

    def ask(self, name, query):
        stamped = replace(query, study=self.study.digest, exchange=self.exchange)
        content = codec.encode(stamped)
        self.exchange += 1
        return codec.decode(self.doors[name].handle(content), axis_sizes(self.study))

    def asked(self, query, names=NAMES):
        before, found = self.exchange, {}
        for name in names:
            self.exchange = before
            found[name] = self.ask(name, query)
        return found

    def told(self):
        enrolled, keys = self.asked(Enrol()).values(), [*self.asked(TellKeys()).values()]
        self.roster = TakeRoster(
            rows=np.array([one.n_rows for one in enrolled], np.uint64),
            held_out=np.array([one.held_out for one in keys], np.uint64),
            keys=np.stack([one.keys for one in keys]),
            signatures=np.stack([one.signature for one in keys]),
        )
        return self

    def begun(self):
        self.told()
        self.asked(self.roster)
        self.sealed = self.asked(ShareSecrets())
        return self

    def unmasking(self, to, stayed, number=0, kinds=None, of=None):
        """A query to this client; shares may be of other kinds, or of another sum."""
        at, flags = NAMES.index(to), np.array([name in stayed for name in NAMES], np.uint64)
        kinds = kinds or {name: OWN_MASK if name in stayed else SEED_KEY for name in NAMES}
        of = number if of is None else of
        shares = [self.sealed[name].shares[at, 2 * of + kinds[name]] for name in NAMES]
        return Unmask(number=number, stayed=flags, shares=np.stack(shares))


def refused(answer):
    return answer.reason if isinstance(answer, Refusal) else None


def rebuilt_by(told, owner):
    """A secret of this client, from what these told of it."""
    at = NAMES.index(owner)
    words = {NAMES.index(name) + 1: as_bytes(own.shares[at]) for name, own in told.items()}
    return secret_of({place: int.from_bytes(word, "little") for place, word in words.items()})


STEP = SumResiduals(number=0, n_terms=2, parameters=np.zeros((2, 3)))


def test_a_server_that_says_of_who_answered_that_it_did_not_cannot_read_it(tmp_path):
    server = Server(folder=tmp_path).begun()
    masked = server.asked(SumPrivately())
    others = [name for name in NAMES if name != "west"]
    told = {name: server.ask(name, server.unmasking(name, others)) for name in others}
    # What it says is done: the seeds of west for this sum open, and its masks with others go.
    seed_key, west = rebuilt_by(told, "west"), NAMES.index("west")

    def opened(number, place):
        under_seal = as_bytes(server.sealed["west"].seeds[place, number])
        return unsealed(seed_key, seed_label(number, west, place), under_seal)

    pairs = {place: opened(0, place) for place in range(west)}
    own = server.doors["west"]._space.party._pair_keys
    assert pairs == {place: sum_seed(own[place], 0) for place in range(west)}
    asked = bytes(server.doors["west"]._space.party._kept()["asked"][0])
    left = masked["west"].numbers - without_pair_masks(
        0 * masked["west"].numbers, west, pairs, asked
    )
    plain = flattened(SumPrivately(), server.doors["west"]._space.first_sums, server.study)
    # Its own mask is on it still: numbers of any size.
    assert not (left.view(np.int64) == plain).any()
    assert np.abs(left.view(np.int64).astype(float)).mean() > 2.0**60
    # And nobody helps with that, whatever is asked, whoever was started anew.
    for name in NAMES:
        server.restarted(name)
        everybody = server.ask(name, server.unmasking(name, NAMES))
        assert refused(everybody) is (None if name == "west" else RefusalCode.WRONG_SURVIVORS)
        again = server.ask(name, server.unmasking(name, others))
        assert refused(again) is (RefusalCode.WRONG_SURVIVORS if name == "west" else None)
    # What was rebuilt opens the seeds of this sum alone, and from these no others follow.
    n_sums = server.sealed["west"].seeds.shape[1]
    assert n_sums == 3
    assert {opened(number, place) for number in range(1, n_sums) for place in range(west)} == {None}
    later = {sum_seed(own[place], number) for number in range(1, n_sums) for place in own}
    assert not later & {sum_seed(seed, number) for seed in pairs.values() for number in range(3)}


def test_two_sets_told_to_two_halves_open_nobody_with_a_colluder():
    server = Server().begun()
    server.asked(SumPrivately())
    others = [name for name in NAMES if name != "west"]
    colluder, halves = "east", (("mid", "west"), ("north", "south"))
    stayed = {name: server.ask(name, server.unmasking(name, NAMES)) for name in halves[0]}
    lacking = {name: server.ask(name, server.unmasking(name, others)) for name in halves[1]}
    # The one that tells all has shares of both secrets.
    door = server.doors[colluder]._space.party
    west, at = NAMES.index("west"), NAMES.index(colluder)
    both = [
        door._share_of(west, 0, kind, server.sealed["west"].shares[at, kind])
        for kind in (OWN_MASK, SEED_KEY)
    ]
    secrets = server.doors["west"]._space.party._secrets[0]
    for told, share, secret in zip((stayed, lacking), both, secrets[:2], strict=True):
        words = {NAMES.index(name) + 1: as_bytes(own.shares[west]) for name, own in told.items()}
        words[NAMES.index(colluder) + 1] = share
        shares = {place: int.from_bytes(word, "little") for place, word in words.items()}
        assert len(shares) == 3
        assert secret_of(shares) != secret


def test_a_set_that_is_too_small_or_not_true_is_refused_and_so_are_other_shares():
    server = Server().begun()
    north = server.unmasking("north", NAMES)
    assert refused(server.ask("north", north)) is RefusalCode.WRONG_SURVIVORS  # it gave no answer
    server.asked(SumPrivately())
    small = server.unmasking("north", NAMES[:3])
    without_itself = server.unmasking("north", [name for name in NAMES if name != "north"])
    for wrong in (small, without_itself):
        assert refused(server.ask("north", wrong)) is RefusalCode.WRONG_SURVIVORS
    kinds = dict.fromkeys(NAMES, OWN_MASK)
    both = server.unmasking("north", NAMES, kinds=kinds | {"west": SEED_KEY})
    of_another = server.unmasking("north", NAMES, of=1)
    for_another = server.unmasking("south", NAMES)
    forged = replace(north, shares=north.shares + np.uint64(1))
    for wrong in (both, of_another, for_another, forged):
        assert refused(server.ask("north", wrong)) is RefusalCode.WRONG_SHARES
    malformed = replace(north, stayed=2 * north.stayed)
    for wrong in (malformed, replace(north, number=3), replace(north, number=-1)):
        assert refused(server.ask("north", wrong)) is RefusalCode.MALFORMED
    assert refused(server.ask("north", north)) is None


def forged(server, colluder, keys):
    """The roster with other keys of a colluder, which signs them."""
    at = NAMES.index(colluder)
    counts = int(server.roster.rows[at]), int(server.roster.held_out[at])
    own = Identity(PrivateDraws(0, colluder, secret_of_client(colluder)).key)
    changed = server.roster.keys.copy()
    changed[at] = keys
    signatures = server.roster.signatures.copy()
    signatures[at] = as_words(own.signed(signed_part(server.study, colluder, counts, keys)))
    return replace(server.roster, keys=changed, signatures=signatures)


def test_a_colluder_that_tells_the_keys_of_another_for_its_own_takes_no_mask_off():
    server = Server().told()
    # Masks of mid with east and with north would be the same, and cancel: it stands between them.
    roster = forged(server, "east", server.roster.keys[NAMES.index("north")])
    assert refused(server.ask("mid", roster)) is None
    masked = server.ask("mid", SumPrivately()).numbers
    party = server.doors["mid"]._space.party
    about = bytes(party._kept()["asked"][0])
    plain = flattened(SumPrivately(), server.doors["mid"]._space.first_sums, server.study)
    masks = {
        other: stream(party._seeds(0)[other], about, len(plain))
        for other in party._holders
        if other != NAMES.index("mid")
    }
    assert len({mask.tobytes() for mask in masks.values()}) == len(NAMES) - 1
    left = masked - stream(party._secrets[0].own_mask, about, len(plain))
    for mask in masks.values():  # no one of them is all there is
        assert not (left - mask == plain.view(np.uint64)).any()


def test_two_rosters_for_two_halves_open_nobody():
    server = Server().told()
    other = SessionKey(b"of nobody", b"")
    keys = np.stack([as_words(other.public)] * server.roster.keys.shape[1])
    halves = {"mid": server.roster, "north": server.roster}
    halves |= dict.fromkeys(("south", "west"), forged(server, "east", keys))
    for name, roster in halves.items():
        assert refused(server.ask(name, roster)) is None
    server.sealed = server.asked(ShareSecrets(), halves)
    server.asked(SumPrivately(), halves)
    # Shares are sealed with keys of a roster, and so are masks: of another's nothing can be told.
    server.sealed["east"] = server.sealed["mid"]
    for name in halves:
        assert refused(server.ask(name, server.unmasking(name, NAMES))) is RefusalCode.WRONG_SHARES


def test_two_sets_in_one_bundle_or_of_two_processes_at_once_get_one_answer(tmp_path):
    server = Server(folder=tmp_path).begun()
    server.asked(SumPrivately())
    sets = (NAMES, tuple(name for name in NAMES if name != "west"))
    asked = [
        codec.encode(
            replace(server.unmasking("north", stayed), study=server.study.digest, exchange=9)
        )
        for stayed in sets
    ]
    together = server.doors["north"].handle(bundled(asked))
    found = [codec.decode(one, axis_sizes(server.study)) for one in unbundled(together)]
    assert [refused(one) for one in found] == [None, RefusalCode.WRONG_SURVIVORS]
    server.asked(STEP)
    for name in ("east", "mid", "south"):  # each with a door of its own, as in two processes
        queries = (server.unmasking(name, stayed, number=1) for stayed in sets)
        asked = [codec.encode(replace(one, study=server.study.digest)) for one in queries]
        doors = [door_to(name, server.study, tmp_path) for _ in asked]
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda door, one: door.handle(one), doors, asked))
        reasons = [refused(codec.decode(one, axis_sizes(server.study))) for one in found]
        assert sorted(map(str, reasons)) == ["None", str(RefusalCode.WRONG_SURVIVORS)]


@pytest.mark.parametrize("threshold", [2, 3])
def test_on_a_ring_too_many_lacking_side_by_side_are_refused(monkeypatch, threshold):
    monkeypatch.setattr(about_masks, "holding_of", lambda *_: Holding(2, threshold))
    server = Server(study_with(epsilon=3 + threshold)).begun()
    server.asked(SumPrivately())
    stayed = np.array([name != "west" for name in NAMES], np.uint64)
    query = Unmask(number=0, stayed=stayed, shares=np.zeros((3, 6), np.uint64))
    enough = RefusalCode.WRONG_SHARES if threshold == 2 else RefusalCode.WRONG_SURVIVORS
    assert refused(server.ask("north", query)) is enough


def test_masks_of_a_sum_are_for_one_question():
    server = Server(study_with(steps=2)).begun()
    assert refused(server.ask("west", STEP)) is None
    other = replace(STEP, parameters=STEP.parameters + 1)
    assert refused(server.ask("west", other)) is RefusalCode.ASKED_ALREADY
    assert refused(server.ask("west", replace(other, number=1))) is None


def test_a_client_that_forgot_over_whom_it_helped_does_not_help_again(tmp_path):
    server = Server(folder=tmp_path).begun()
    server.asked(SumPrivately())
    query = server.unmasking("north", NAMES)
    assert refused(server.ask("north", query)) is None
    shutil.rmtree(tmp_path / "north")
    server.restarted("north")
    for wrong in (server.roster, query, SumPrivately()):
        assert refused(server.ask("north", wrong)) is RefusalCode.FAILED
    with pytest.raises(fedopl.FedoplError, match="UnmaskingShares left for this study"):
        server.doors["north"].check_history()


# --- who lies, and who errs -----------------------------------------------------------------------


def test_a_client_whose_sums_cannot_be_true_refuses_at_home_and_the_others_go_on(
    monkeypatch, totals
):
    honest = Door._computed

    def broken(door, query):
        found = honest(door, query)
        if door.name == "west" and isinstance(query, SumResiduals):
            assert isinstance(found, ResidualSums)
            return replace(found, residuals=found.residuals + 2**45)
        return found

    monkeypatch.setattr(Door, "_computed", broken)
    study = study_with()
    losing = Losing(study)
    record = ran(study, losing)
    assert totals == [NAMES, NAMES[:-1], NAMES]
    # What crossed does not say why; the client's own ledger does.
    assert {"west": "FAILED"} in [latest.refused for latest in record.rounds]
    entry = next(own for own in losing.doors["west"].ledger.entries() if own.reason)
    assert (entry.query, entry.why) == ("SumResiduals", "IMPOSSIBLE_SUMS")


def test_shares_that_do_not_fit_stop_the_run_and_name_whose_they_are(monkeypatch):
    told = Unmasking._told

    def other_shares(unmasking, number, stayed):
        answers = told(unmasking, number, stayed)
        wrong = answers["mid"].shares.copy()
        wrong[NAMES.index("west")] += np.uint64(1)
        answers._held["mid"] = replace(answers["mid"], shares=wrong)
        return answers

    monkeypatch.setattr(Unmasking, "_told", other_shares)
    study = study_with()
    with pytest.raises(fedopl.FederationError, match="of west do not fit together"):
        ran(study, Losing(study, {2: {"west"}}))


WRONG = {
    "plain": ({"aggregation": "plain", "keys": {}}, 'only with aggregation = "secure"'),
    "many": ({"dropouts": 2}, "at most 1 may be lacking"),
    "negative": ({"dropouts": -1}, "dropouts"),
}


@pytest.mark.parametrize(("said", "complaint"), WRONG.values(), ids=WRONG)
def test_a_wrong_number_is_refused_in_words(said, complaint):
    with pytest.raises(fedopl.OptionError, match=complaint):
        study_with(**said)


def test_noise_is_larger_by_those_who_may_be_lacking_and_a_study_without_is_what_it_was():
    study = study_with(colluders=1, dropouts=1)
    assert study.privacy.noise_of_total == pytest.approx(np.sqrt(5 / 3))
    assert PrivateSetting(study).plan.n_sharing_noise == 3
    assert "dropouts" not in study_with(dropouts=0).model_dump_json()


def test_a_client_that_tells_wrong_seeds_and_is_lacking_stops_the_run(monkeypatch):
    study, honest = study_with(), Party._seeds
    losing = Losing(study, {FIRST_SUM: {"west"}})
    west = NAMES.index("west")

    def lying(own, number):
        found = honest(own, number)
        return {k: bytes(32) for k in found} if own._place == west else found

    monkeypatch.setattr(Party, "_seeds", lying)
    with pytest.raises(fedopl.FederationError, match="masks hide which one"):
        ran(study, losing)
    monkeypatch.setattr(Party, "_seeds", honest)
    # Seeds that what was shared does not open are noticed, and whose they are.
    told = Party.sealed

    def spoiled(own):
        found = told(own)
        return replace(found, seeds=found.seeds + np.uint64(own._place == west))

    monkeypatch.setattr(Party, "sealed", spoiled)
    with pytest.raises(fedopl.FederationError, match="of the seeds of west do not fit together"):
        ran(study, Losing(study, {FIRST_SUM: {"west"}}))
