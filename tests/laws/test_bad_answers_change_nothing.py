import random
import struct
from dataclasses import fields

import numpy as np
import pytest

import fedopl
from fedopl.base.errors import FederationError
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages import bundle, codec
from fedopl.messages.bundle import bundled, unbundled
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.messages.learning.enrolment import Enrolment
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.message import VERSION
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import MESSAGES
from fedopl.policies.policy import policy_json
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.plans import EvaluationPlan, NuisancePlan, TrainingPlan
from fedopl.study.policy_plans import Linear
from fedopl.study.study import Study
from trips import Tampered, in_one_message, travelled_with

NAMES = ("east", "north", "south", "west")
BAD = "south"
ORACLES = ("csoaa-exact", "csoaa-sgd", "wap", "direct")


PLAN = TrainingPlan(rounds=3, local_steps=4, batch_size=16)


def study_of(*, oracle="csoaa-exact", plan=PLAN, **changes):
    options = {
        "actions": ("a0", "a1", "a2"),
        "features": ("x0", "x1", "x2"),
        "nuisances": NuisancePlan(propensity="marginal", outcome="ols", folds=2),
        "policy": Linear(oracle=oracle, training=plan),
        "evaluation": 0.25,
    }
    return Study(**{**options, **changes})


SGD, WAP, DIRECT = (study_of(oracle=oracle) for oracle in ORACLES[1:])
EXACT, FINITE = study_of(), study_of(policy="finite")


@pytest.fixture
def doors(draw):
    """A function from a study to four clients' doors."""
    data = {name: draw(90 + 20 * turn, seed=turn, n_features=3) for turn, name in enumerate(NAMES)}

    def _doors(study, limits=None):
        limits = limits or Limits.open()
        return {
            name: Door(name, data[name], study, limits=limits, secret=SEED_ALONE) for name in NAMES
        }

    return _doors


def to_bad(change):
    """A tampering that changes the bytes of one of the bad client's answers."""
    return in_one_message(lambda answers, earlier: {**answers, BAD: change(answers[BAD])})


def to_bad_trip(change):
    """A tampering that changes the bad client's reply to the whole trip, given as its messages."""

    def _tamper(trip):
        return list({**trip.replies, BAD: change(unbundled(trip.replies[BAD]))}.items())

    return _tamper


def silence(trip):
    return [(name, content) for name, content in trip.replies.items() if name != BAD]


def reencoded(study, change):
    """A tampering that changes the message itself."""

    def _change(content):
        message = codec.decode(content, axis_sizes(study))
        values = {field.name: getattr(message, field.name) for field in fields(message)}
        return codec.encode(type(message)(**{**values, **change(message)}))

    return to_bad(_change)


def first_array(message):
    return next(name for name, axes in codec.FIELDS[type(message)] if isinstance(axes, tuple))


def with_first_array(change):
    return lambda study: reencoded(
        study,
        lambda message: {first_array(message): change(getattr(message, first_array(message)))},
    )


def spoiled(value):
    def _spoil(array):
        array = np.array(array)
        array.reshape(-1)[-1] = value
        return array

    return with_first_array(_spoil)


def with_an_axis_more(content):
    kind = MESSAGES[content[6]]
    names = [name for name, _ in codec.FIELDS[kind]]
    array = names.index(next(n for n, axes in codec.FIELDS[kind] if isinstance(axes, tuple)))
    start = 8 + 32 + 8 * (array - 1)  # the header, the digest, and whole numbers
    return content[:start] + bytes([content[start] + 1]) + content[start + 1 :]


def one_too_few(array):
    """The array without its last column; without its last row too, where matrices are square."""
    square = array.ndim > 1 and array.shape[-1] == array.shape[-2]
    return array[..., :-1, :-1] if square else array[..., :-1]


def with_short_floats(content):
    return content[:-16] + np.frombuffer(content[-16:], "<f8").astype("<f4").tobytes()


@in_one_message
def replayed(answers, earlier):
    """Last exchange's answer again; where there was none, one of an exchange yet to come."""
    if earlier:
        return {**answers, BAD: earlier[-1][BAD]}
    later = bytearray(answers[BAD])
    later[8 + 32] += 1
    return {**answers, BAD: bytes(later)}


def another_kind(study):
    def _other(message):
        kind = ValuesByPart if not isinstance(message, ValuesByPart) else Enrolment
        arrays = {
            name: np.zeros([min(axis_sizes(study)[axis]) for axis in axes])
            for name, axes in codec.FIELDS[kind]
            if isinstance(axes, tuple)
        }
        numbers = {name: 1 for name, content in codec.FIELDS[kind] if content is int}
        common = {"study": message.study, "exchange": message.exchange}
        return codec.encode(kind(**{**numbers, **common, **arrays}))

    return to_bad(lambda content: _other(codec.decode(content, axis_sizes(study))))


def twice(trip):
    return [*trip.replies.items(), (BAD, trip.replies[BAD])]


def twice_with_another_answer(trip):
    return [*trip.replies.items(), (BAD, trip.replies["north"])]


def under_an_unknown_name(trip):
    return [*silence(trip), ("nowhere", trip.replies[BAD])]


def from_a_stranger_too(trip):
    return [*trip.replies.items(), ("nowhere", trip.replies[BAD])]


def refusal(code):
    return lambda study: to_bad(
        lambda _: codec.encode(Refusal(study=study.digest, exchange=0, reason=code))
    )


# What is done to one answer, and what the run says of it.
FAULTS = {
    "nan": (spoiled(np.nan), "not all numbers are finite"),
    "infinity": (spoiled(-np.inf), "not all numbers are finite"),
    "too many": (with_first_array(lambda a: np.concatenate([a] * 4)), "not what the study"),
    "one too few": (with_first_array(one_too_few), "rejected"),
    "an axis more": (lambda study: to_bad(with_an_axis_more), "axes, came"),
    "floats of four bytes": (lambda study: to_bad(with_short_floats), "rejected: "),
    "garbage": (lambda study: to_bad(lambda content: bytes(range(256))), "not a message"),
    "a pickle": (lambda study: to_bad(lambda content: b"\x80\x04K\x01."), "too short"),
    "nothing": (lambda study: to_bad(lambda content: b""), "too short"),
    "cut off": (lambda study: to_bad(lambda content: content[:-1]), "cut off"),
    "too long": (lambda study: to_bad(lambda content: content + bytes(8)), "left over"),
    "another version": (
        lambda study: to_bad(lambda content: content[:4] + b"\x07\x00" + content[6:]),
        f"expected version {VERSION}, came 7",
    ),
    "replayed": (lambda study: replayed, "answers exchange"),
    "another study": (
        lambda study: reencoded(study, lambda message: {"study": study_of(seed=9).digest}),
        "answers for another study",
    ),
    "another kind": (another_kind, "answers with"),
    "refused": (refusal(RefusalCode.SMALL_CELLS), "SMALL_CELLS"),
}
# What is done to the reply to a whole trip.
TRIP_FAULTS = {
    "twice": (twice, "answered 2 times"),
    "twice, differently": (twice_with_another_answer, "answered 2 times"),
    "under an unknown name": (under_an_unknown_name, "no answer"),
    "silent": (silence, "no answer"),
}


def quick(study):
    """The study without values at its end, for tests of what comes before."""
    return study.model_copy(update={"evaluation": EvaluationPlan(share=0)})


# A study, and one of its exchanges.
EXCHANGES = {
    "enrolment": (quick(EXACT), 0),
    "outcome sums": (quick(EXACT), 1),
    "score sums": (quick(EXACT), 2),
    "values": (EXACT, 3),
    "description": (EXACT, 5),
    "improved policy": (quick(SGD), 4),
    "pair sums": (quick(WAP), 3),
    "slope": (quick(DIRECT), 5),
    "validation": (quick(DIRECT), 18),
    "finite": (quick(FINITE), 3),
}
RIDES_ALONG = ("outcome sums", "description")
TRIPS = {name: at for name, at in EXCHANGES.items() if name not in RIDES_ALONG}


def outcome(doors, study, exchange, tamper):
    return run_study(Conversation(study, Tampered(doors(study), {exchange: tamper})))


def assert_same(run, expected):
    assert policy_json(run.policy) == policy_json(expected.policy)
    assert run.mixture == expected.mixture
    assert (run.chosen, run.best_arm) == (expected.chosen, expected.best_arm)
    assert str(run.values) == str(expected.values)


RUNS_WITHOUT = {}
REFUSING = refusal(RefusalCode.FAILED)


def left_out(study):
    """The bad client does not contribute: it is silent, or refuses what rides along with more."""
    refused = refusal(RefusalCode.FAILED)(study)
    return lambda trip: refused(trip) if trip.place else silence(trip)


@pytest.fixture
def without(doors):
    """Runs to which the bad client did not contribute, each made once."""

    def _without(study, exchange, how=left_out):
        key = (study.digest, exchange, how)
        if key not in RUNS_WITHOUT:
            RUNS_WITHOUT[key] = outcome(doors, study, exchange, how(study))
        return RUNS_WITHOUT[key]

    return _without


def said_of_bad(run):
    """Why the bad client did not contribute, by exchange."""
    said = [(exchange, why) for exchange, name, why in run.refusals if name == BAD]
    assert len(said) == len(dict(said))
    return dict(said)


def assert_named(run, exchange, why):
    assert BAD not in run.rounds[exchange].answered
    named = said_of_bad(run)
    assert why in named.pop(exchange)
    assert named == ({} if exchange else {1: "rejected: did not enrol"})


@pytest.mark.parametrize(("make", "why"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize(("study", "exchange"), EXCHANGES.values(), ids=EXCHANGES)
def test_a_faulty_answer_is_named_and_counts_as_none(doors, without, study, exchange, make, why):
    run = outcome(doors, study, exchange, make(study))
    assert_named(run, exchange, why)
    # Values of all rows come along with values, and count.
    assert_same(run, without(study, exchange, REFUSING if exchange == 3 else left_out))


# A gigabyte each: what comes alone, and what comes with another answer.
@pytest.mark.parametrize(
    "kind", ["score sums", pytest.param("description", marks=pytest.mark.slow_law)]
)
def test_an_answer_that_is_too_large_is_named_and_counts_as_none(doors, without, kind):
    study, exchange = EXCHANGES[kind]
    too_large = to_bad(lambda content: bytes(codec.LARGEST_MESSAGE + 1))
    run = outcome(doors, study, exchange, too_large)
    assert_named(run, exchange, "at most 1,073,741,824 bytes")
    assert_same(run, without(study, exchange))


def assert_named_on_the_whole_trip(run, exchange, why):
    named = said_of_bad(run)
    assert list(named) == travelled_with(run.rounds, exchange)
    for at, said in named.items():
        assert why in said
        assert BAD not in run.rounds[at].answered


@pytest.mark.parametrize(("tamper", "why"), TRIP_FAULTS.values(), ids=TRIP_FAULTS)
@pytest.mark.parametrize(("study", "exchange"), TRIPS.values(), ids=TRIPS)
def test_a_faulty_reply_is_named_for_each_question_and_counts_as_none(
    doors, without, study, exchange, tamper, why
):
    run = outcome(doors, study, exchange, tamper)
    assert_named_on_the_whole_trip(run, exchange, why)
    assert_same(run, without(study, exchange))


# --- bundles ------------------------------------------------------------------------------------


def raw_bundle(messages):
    """A bundle of any number of messages, also of numbers that may not be."""
    parts = [struct.pack("<4sI", bundle.BUNDLE_MAGIC, len(messages))]
    parts += [struct.pack("<I", len(message)) + message for message in messages]
    return b"".join(parts)


def of_another_count(count):
    return lambda parts: raw_bundle(parts)[:4] + struct.pack("<I", count) + raw_bundle(parts)[8:]


def of_another_length(length):
    return lambda parts: raw_bundle(parts)[:8] + struct.pack("<I", length) + raw_bundle(parts)[12:]


# What is replied where two or three messages were expected, and what the run says to each question.
BUNDLES = {
    "cut off": (lambda parts: bundled(parts)[:-1], "rejected"),
    "cut off after a part": (lambda parts: bundled(parts)[: 12 + len(parts[0])], "rejected"),
    "cut off in its header": (lambda parts: bundled(parts)[:6], "rejected"),
    "nothing but its magic": (lambda parts: bundle.BUNDLE_MAGIC, "rejected"),
    "too long": (lambda parts: bundled(parts) + b"\0", "rejected"),
    "no part": (lambda parts: raw_bundle([]), "rejected"),
    "a part too few": (lambda parts: raw_bundle(parts[:-1]), "rejected"),
    "a part too many": (lambda parts: bundled([*parts, parts[-1]]), "rejected"),
    "more parts than any": (lambda parts: raw_bundle(9 * parts), "rejected"),
    "said to have one part": (of_another_count(1), "rejected"),
    "said to have six parts": (of_another_count(6), "rejected"),
    "said to have billions of parts": (of_another_count(2**32 - 1), "rejected"),
    "said to have an empty part": (of_another_length(0), "rejected"),
    "said to have a part of gigabytes": (of_another_length(2**32 - 1), "rejected"),
    "the first message alone": (lambda parts: parts[0], "rejected"),
    "the last message alone": (lambda parts: parts[-1], "rejected"),
    "its messages without a bundle": (b"".join, "rejected"),
    "bundles for parts": (
        lambda parts: bundled([bundled(parts)] * len(parts)),
        "not a message of ours",
    ),
    "a bundle in another": (lambda parts: raw_bundle([bundled(parts)]), "rejected"),
    "swapped": (lambda parts: bundled([parts[-1], *parts[:-1]]), "answers exchange"),
    "empty parts": (lambda parts: bundled([b""] * len(parts)), "too short"),
}
TOGETHER = {
    "enrolment with outcome sums": (quick(EXACT), 0),
    "values with a description": (EXACT, 3),
    "values with a description of finite policies": (FINITE, 4),
}


@pytest.mark.parametrize(("change", "why"), BUNDLES.values(), ids=BUNDLES)
@pytest.mark.parametrize(("study", "exchange"), TOGETHER.values(), ids=TOGETHER)
def test_a_faulty_bundle_is_named_for_each_question_and_counts_as_none(
    doors, without, study, exchange, change, why
):
    run = outcome(doors, study, exchange, to_bad_trip(change))
    assert len(travelled_with(run.rounds, exchange)) > 1
    assert_named_on_the_whole_trip(run, exchange, why)
    assert_same(run, without(study, exchange))


def test_the_replies_of_an_earlier_trip_are_named_for_each_question_and_count_as_none(
    doors, without
):
    def earlier_trip(trip):
        again = bundled([(*trip.earlier, *trip.earlier)[at][BAD] for at in range(5)])
        return list({**trip.replies, BAD: again}.items())

    run = outcome(doors, EXACT, 3, earlier_trip)
    assert_named_on_the_whole_trip(run, 3, "answers exchange")
    assert_same(run, without(EXACT, 3))


# What is replied where one message was expected.
NOT_ASKED_TOGETHER = {
    "twice in a bundle": lambda parts: bundled(2 * parts),
    "alone in a bundle": raw_bundle,
    "in a bundle with nothing": lambda parts: bundled([*parts, b""]),
    "in two halves": lambda parts: bundled([parts[0][:50], parts[0][50:]]),
    "an empty bundle": lambda parts: raw_bundle([]),
    "a bundle that is cut off": lambda parts: bundled(2 * parts)[:-1],
}
ALONE = {name: at for name, at in TRIPS.items() if at not in TOGETHER.values()}


@pytest.mark.parametrize("change", NOT_ASKED_TOGETHER.values(), ids=NOT_ASKED_TOGETHER)
@pytest.mark.parametrize(("study", "exchange"), ALONE.values(), ids=ALONE)
def test_a_bundle_where_one_message_was_expected_is_named_and_counts_as_none(
    doors, without, study, exchange, change
):
    run = outcome(doors, study, exchange, to_bad_trip(change))
    assert travelled_with(run.rounds, exchange) == [exchange]
    assert_named_on_the_whole_trip(run, exchange, "rejected")
    assert_same(run, without(study, exchange))


def counts_told(run):
    return {
        name: (told.decided.tolist(), told.taken.tolist(), told.chances.tolist())
        for name, told in run.described.by_client.items()
    }


def test_a_faulty_answer_takes_no_other_answer_of_its_trip_with_it(doors):
    plain = run_study(Conversation(EXACT, InProcess(doors(EXACT))))
    garbage = to_bad(lambda content: bytes(range(256)))
    without_values = outcome(doors, EXACT, 3, garbage)
    assert counts_told(without_values) == counts_told(plain)
    assert str(without_values.values) != str(plain.values)
    undescribed = outcome(doors, EXACT, 5, garbage)
    assert_same(undescribed, plain)
    others = {name: told for name, told in counts_told(plain).items() if name != BAD}
    assert counts_told(undescribed) == others
    without_sums = outcome(doors, EXACT, 1, garbage)
    assert (without_sums.mixture, without_sums.rows) == (plain.mixture, plain.rows)
    assert BAD in without_sums.rounds[2].answered


# --- what counts, and who is heard --------------------------------------------------------------


# Left out are choices between policies, which one client need not change, and descriptions,
# which change no policy and no value.
WEIGHED = {
    name: at
    for name, at in EXCHANGES.items()
    if name not in {"slope", "validation", "finite", "description"}
}


@pytest.mark.parametrize(("study", "exchange"), WEIGHED.values(), ids=WEIGHED)
def test_an_answer_with_nothing_wrong_counts(doors, without, study, exchange):
    run = run_study(Conversation(study, InProcess(doors(study))))
    assert run.refusals == ()
    assert all(latest.answered == NAMES for latest in run.rounds)
    silent = without(study, exchange)
    assert (policy_json(run.policy), str(run.values)) != (
        policy_json(silent.policy),
        str(silent.values),
    )


@pytest.mark.parametrize(
    "trip", [[0, 1], [2], [3, 4, 5, 6, 7]], ids=["enrolment", "scores", "values"]
)
def test_a_name_nobody_asked_is_recorded_and_counts_for_nothing(doors, without, trip):
    run = outcome(doors, EXACT, trip[0], under_an_unknown_name)
    for exchange in trip:
        assert run.rounds[exchange].rejected == {"nowhere": "was not asked"}
        assert run.rounds[exchange].silent == (BAD,)
    strangers = [(at, why) for at, name, why in run.refusals if name == "nowhere"]
    assert strangers == [(exchange, "rejected: was not asked") for exchange in trip]
    assert_same(run, without(EXACT, trip[0]))


@pytest.mark.parametrize(
    "trip", [[0, 1], [2], [3, 4, 5, 6, 7]], ids=["enrolment", "scores", "values"]
)
def test_an_extra_reply_from_a_stranger_changes_nothing(doors, trip):
    plain = run_study(Conversation(EXACT, InProcess(doors(EXACT))))
    run = outcome(doors, EXACT, trip[0], from_a_stranger_too)
    assert_same(run, plain)
    assert counts_told(run) == counts_told(plain)
    assert run.refusals == tuple((at, "nowhere", "rejected: was not asked") for at in trip)


@pytest.mark.parametrize("fault", [silence, to_bad(lambda content: b"")], ids=["silent", "faulty"])
def test_a_client_that_did_not_enrol_is_not_asked_again_and_not_heard(doors, fault):
    def eager(trip):
        return [*trip.replies.items(), (BAD, trip.earlier[0][BAD])]

    run = run_study(Conversation(EXACT, Tampered(doors(EXACT), {0: fault, 2: eager})))
    assert BAD not in run.mixture
    assert BAD not in run.rounds[2].asked
    assert run.rounds[2].rejected == {BAD: "was not asked"}


IMPOSSIBLE = {
    "scaled": (
        lambda m: {name: 1000 * getattr(m, name) for name in ("grams", "products", "squares")},
        "the mean of one is not one",
    ),
    "scaled down": (lambda m: {"grams": m.grams / 10}, "the mean of one is not one"),
    "a share above one": (lambda m: {"shares": 50 * m.shares}, "a share of rows"),
    "a share below zero": (lambda m: {"shares": -m.shares}, "a share of rows"),
    "two grams of three": (lambda m: {"grams": np.repeat(m.grams, 2, axis=0)}, "number of grams"),
}


@pytest.mark.parametrize(("change", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_score_sums_are_named_and_count_as_none(doors, without, change, why):
    run = outcome(doors, EXACT, 2, reencoded(EXACT, change))
    assert why in run.rounds[2].rejected[BAD]
    assert BAD not in run.rounds[2].answered
    assert [(at, name) for at, name, _ in run.refusals] == [(2, BAD)]
    assert_same(run, without(EXACT, 2))


def fill(value):
    return lambda array: np.full_like(array, value)


LARGE = {
    "outcome sums": (EXACT, 1),
    "score sums": (EXACT, 2),
    "values": (EXACT, 3),
    "improved policy": (SGD, 4),
    "pair sums": (WAP, 3),
    "slope": (DIRECT, 5),
}


@pytest.mark.parametrize("size", [1e200, 1.7e308])
@pytest.mark.parametrize(("study", "exchange"), LARGE.values(), ids=LARGE)
def test_numbers_near_the_largest_there_are_do_not_break_the_run(doors, study, exchange, size):
    run = outcome(doors, study, exchange, with_first_array(fill(size))(study))
    assert np.isfinite(run.policy.parameters).all()
    assert str(run)


@pytest.mark.parametrize("n_rows", [0, -5])
def test_an_enrolment_without_rows_is_named_and_counts_as_none(doors, without, n_rows):
    run = outcome(doors, EXACT, 0, reencoded(EXACT, lambda _: {"n_rows": n_rows}))
    assert run.rounds[0].rejected == {BAD: "enrolled without a row"}
    assert run.rounds[1].rejected == {BAD: "did not enrol"}
    assert_same(run, without(EXACT, 0))


def test_values_of_too_few_policies_are_named_and_count_as_none(doors, without):
    tamper = reencoded(
        EXACT, lambda m: {"means": m.means[..., 1:], "covariances": m.covariances[..., 1:, 1:]}
    )
    run = outcome(doors, EXACT, 3, tamper)
    assert BAD in run.rounds[3].rejected
    assert_same(run, without(EXACT, 3, REFUSING))


def test_values_whose_covariances_do_not_fit_their_means_are_named_and_count_as_none(
    doors, without
):
    run = outcome(
        doors, EXACT, 3, reencoded(EXACT, lambda m: {"covariances": m.covariances[1:, 1:]})
    )
    assert BAD in run.rounds[3].rejected
    assert_same(run, without(EXACT, 3, REFUSING))


# --- quorum -------------------------------------------------------------------------------------


def only_east(trip):
    """East answers, north is silent, south sends garbage, west refuses, each to every question."""
    content = trip.replies["east"]
    study = unbundled(content)[0][8:40]
    no = codec.encode(Refusal(study=study, exchange=0, reason=RefusalCode.TOO_FEW_ROWS))
    questions = len(unbundled(content))
    return [
        ("east", content),
        ("south", bundled([b"garbage!"] * questions)),
        ("west", bundled([no] * questions)),
    ]


QUORUM = {
    "enrolment": (EXACT, 0),
    "score sums": (EXACT, 2),
    "improved policy": (SGD, 4),
    "pair sums": (WAP, 3),
    "slope": (DIRECT, 5),
    "finite": (FINITE, 3),
}


@pytest.mark.parametrize(("study", "exchange"), QUORUM.values(), ids=QUORUM)
def test_a_lost_quorum_ends_the_run_and_names_who_is_missing_and_why(doors, study, exchange):
    with pytest.raises(FederationError) as caught:
        outcome(doors, study, exchange, only_east)
    message = str(caught.value)
    assert "1 of 4 clients" in message
    assert "50%" in message
    assert message.splitlines()[1:] == [
        "  west refused (TOO_FEW_ROWS): it has fewer rows than it takes part with. "
        "Wait for more rows, or let the client lower its own limit 'minimum_rows'.",
        "  south: not a message of ours",
        "  north: no answer",
    ]


@pytest.mark.parametrize(("study", "exchange"), QUORUM.values(), ids=QUORUM)
def test_a_quorum_of_one_client_is_one_client(doors, study, exchange):
    small = study.model_copy(update={"quorum": 0.25})
    run = outcome(doors, small, exchange, only_east)
    assert run.rounds[exchange].answered == ("east",)


def nobody(trip):
    return []


@in_one_message
def nobody_usable(answers, earlier):
    return dict.fromkeys(answers, b"garbage!")


@pytest.mark.parametrize(
    ("exchange", "tamper", "query", "why"),
    [
        (0, nobody, "Enrol", "no answer"),
        (0, nobody_usable, "Enrol", "not a message of ours"),
        (2, nobody, "SumScores", "no answer"),
    ],
)
def test_if_nobody_answers_the_run_ends_and_names_everybody(doors, exchange, tamper, query, why):
    with pytest.raises(FederationError) as caught:
        outcome(doors, EXACT, exchange, tamper)
    first, *reasons = str(caught.value).splitlines()
    assert first.startswith(f"{query}: 0 of 4 clients gave an answer that can be used")
    assert first.endswith("the quorum is 50%")
    assert reasons == [f"  {name}: {why}" for name in NAMES]


def test_if_nobody_reports_outcomes_everybody_is_scored_by_own_models(doors):
    run = outcome(doors, EXACT, 1, nobody_usable)
    assert run.rounds[1].rejected == dict.fromkeys(NAMES, "not a message of ours")
    assert run.values.of("learned").n_rows > 0


@pytest.mark.parametrize("tamper", [nobody, nobody_usable])
def test_without_an_answer_on_values_no_value_of_the_policy_is_claimed(doors, tamper):
    run = outcome(doors, EXACT, 3, tamper)
    # Values of arms and of the past, on all rows, come in another message of the same trip.
    known = {"logging policy", *(f"everybody gets {arm}" for arm in run.study.actions)}
    assert {row.policy for row in run.values} == (set() if tamper is nobody else known)
    assert run.gains.rows == ()
    assert "nothing is claimed" in run.verdict
    assert (run.described is None) == (tamper is nobody)


def test_learn_reports_refusals_by_name(draw):
    clients = {"large": draw(400), "small": draw(20), "other": draw(400, seed=1)}
    run = fedopl.learn(
        clients,
        basis="linear",
        limits="guarded",
        nuisances=NuisancePlan(propensity="marginal"),
        seed=3,
    )
    assert run.refusals == ((0, "small", "TOO_FEW_ROWS"), (1, "small", "TOO_FEW_ROWS"))
    assert set(run.mixture) == {"large", "other"}


# --- order --------------------------------------------------------------------------------------


class Shuffled:
    """A transport whose replies come in another order on every trip."""

    def __init__(self, doors, seed):
        self.inner, self.random = InProcess(doors), random.Random(seed)

    @property
    def clients(self):
        return tuple(self.random.sample(self.inner.clients, len(self.inner.clients)))

    def exchange(self, queries):
        replies = list(self.inner.exchange(queries))
        self.random.shuffle(replies)
        yield from replies


STUDIES = {
    "csoaa-exact": EXACT,
    "csoaa-exact by precision": study_of(policy=fedopl.Linear(precision="clients")),
    "csoaa-exact with local nuisances": study_of(
        nuisances=NuisancePlan(propensity="marginal", folds=2, kind="local")
    ),
    "csoaa-sgd": SGD,
    "csoaa-sgd with sampled clients": study_of(
        oracle="csoaa-sgd",
        plan=TrainingPlan(
            rounds=3, local_steps=4, batch_size=16, clients_per_round=2, momentum=0.5
        ),
    ),
    "wap": WAP,
    "direct": DIRECT,
    "finite": FINITE,
}


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_the_order_of_replies_and_of_clients_changes_nothing(doors, study):
    plain = run_study(Conversation(study, InProcess(doors(study))))
    for seed in range(3):
        run = run_study(Conversation(study, Shuffled(doors(study), seed)))
        assert_same(run, plain)
        assert run.rounds == plain.rounds
    backwards = dict(reversed(doors(study).items()))
    assert_same(run_study(Conversation(study, InProcess(backwards))), plain)
    assert_same(run_study(Conversation(study, InProcess(backwards, threads=2))), plain)


def test_a_client_cannot_change_its_score_sums_after_the_fact(doors):
    run = run_study(Conversation(EXACT, InProcess(doors(EXACT))))
    for sums in run.statistics.sums.values():
        assert isinstance(sums, ScoreSums)
        with pytest.raises(ValueError, match="read-only"):
            sums.grams[0, 0, 0] = 2.0
