"""`fedopl diagnose`: what it prints, and what it says to bad input."""

import pytest
from small_worlds import alike_world, outcome_shift

from fedopl import learn
from fedopl.analysis.modelled_gains import PLAIN, global_bound
from fedopl.engines.runs import load_run
from tiny_study import fedopl, installed, write_tiny


@pytest.fixture(scope="session")
def diagnosed(tmp_path_factory):
    """The folder of a run on clients for whom other things are best."""
    folder = tmp_path_factory.mktemp("diagnosed") / "run"
    world = outcome_shift(alike_world(3, n_features=3, seed=2), 1.5)
    names = dict(zip(world.clients, ("north", "south", "west"), strict=True))
    learn(
        {name: world.logged(of, 500) for of, name in names.items()}, basis="linear", diagnose=True
    ).save(folder)
    return folder


def test_the_text_says_for_whom_joining_pays_and_what_differs(diagnosed):
    done = fedopl("diagnose", diagnosed)
    assert (done.code, done.err) == (0, "")
    assert "west: stay alone." in done.out
    for part in (
        "Gain by joining in reward per decision",
        "Where clients differ",
        "Discrepancy",
        "More weight for one client",
        "Who would learn with whom",
        "Worth of each client's data",
        "How much each client counts",
        "The skewness of this weighing is 1.00",
    ):
        assert part in done.out
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 200


def test_json_holds_the_numbers_of_the_run(diagnosed):
    run = load_run(diagnosed)
    told = fedopl("diagnose", diagnosed, "--json").json()
    gains = {r.client: r.estimate for r in run.gains.rows if r.against == "local policy"}
    assert set(told["advice"]) == set(told["shifts"]) == set(told["modelled"]) == set(run.mixture)
    for client, advice in told["advice"].items():
        assert advice["gain"]["value"] == gains[client].value
        assert advice["gain"]["interval"] == list(gains[client].interval())
    for client, path in told["paths"].items():
        found = run.diagnosis.paths[client]
        assert [p["target_gain"]["value"] for p in path["points"]] == [
            point.target_gain.value for point in found.points
        ]
        assert path["points"][-1]["shift"] == 0
    assert told["bounds"]["proof"]["total"] == global_bound(run).total
    assert told["bounds"]["constant"]["total"] == global_bound(run, PLAIN).total
    compared = told["coalitions"]["compared"]
    assert [tuple(one["members"]) for one in compared] == [
        one.members for one in run.diagnosis.coalitions.compared
    ]
    assert told["unknown"] == run.diagnosis.unknown


def test_a_constant_scales_the_bounds(diagnosed):
    one, ten = (
        fedopl("diagnose", diagnosed, "--json", "--constant", constant).json()
        for constant in ("1", "10")
    )
    assert ten["bounds"]["constant"]["total"] == pytest.approx(
        10 * one["bounds"]["constant"]["total"]
    )
    assert ten["bounds"]["proof"] == one["bounds"]["proof"]
    for client, modelled in ten["modelled"].items():
        assert modelled["alone"] == pytest.approx(10 * one["modelled"][client]["alone"])
        assert modelled["break_even"] == pytest.approx(one["modelled"][client]["break_even"])
    text = fedopl("diagnose", diagnosed, "--constant", 10).out
    assert "by the bounds at constant 10" in " ".join(text.split())


def test_one_client_is_told_of_alone(diagnosed):
    text = fedopl("diagnose", diagnosed, "--client", "west").out
    assert "west: stay alone." in text
    assert "north: " not in text
    told = fedopl("diagnose", diagnosed, "--client", "west", "--json").json()
    assert told["clients"] == ["west"]
    for part in ("advice", "modelled", "shifts", "discrepancies", "paths"):
        assert list(told[part]) == ["west"]
    assert all("west" in one["members"] for one in told["coalitions"]["compared"])


def test_a_run_that_did_not_ask_tells_what_it_can(finished):
    done = fedopl("diagnose", finished.out)
    assert (done.code, done.err) == (0, "")
    assert "Gain by joining" in done.out
    assert "Covariates" in done.out
    assert "diagnose = true under [joining]" in " ".join(done.out.split())
    told = fedopl("diagnose", finished.out, "--json").json()
    assert told["skewness"] == 1.0
    assert told["effective_rows"] == sum(told["rows"].values())
    assert told["bounds"]["proof"]["total"] > told["bounds"]["constant"]["total"] > 0
    assert told["coalitions"] is None
    assert told["shifts"]["north"]["outcomes"] is None


def test_what_clients_would_not_tell_is_said_to_be_unknown(tiny):
    tiny.add("\n[joining]\ndiagnose = true\n")
    for name in ("north", "south"):
        tiny.add("\n[limits]\nparameter_share = 0.01\n", tiny.settings(name))
    assert tiny.run().code == 0
    text = fedopl("diagnose", tiny.out).out
    assert "What is not known" in text
    unknown = fedopl("diagnose", tiny.out, "--json").json()["unknown"]
    assert unknown == load_run(tiny.out).diagnosis.unknown != {}


def test_one_client_alone_has_nobody_to_join(tmp_path):
    tiny = write_tiny(tmp_path / "tiny", names=("north",))
    assert tiny.run().code == 0
    assert "no others to join" in fedopl("diagnose", tiny.out).out
    told = fedopl("diagnose", tiny.out, "--json").json()
    assert told["why_nothing"] == "There is only one client, so there are no others to join."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--client", "nobody"], "client: 'nobody' is not one of 'north', 'south', 'west'"),
        (["--constant", "0"], "constant: expected a number above 0, came 0"),
        (["--constant", "-2"], "constant: expected a number above 0, came -2"),
        (["--constant", "nan"], "constant: expected a number above 0, came nan"),
    ],
)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_bad_options_end_in_one_line(finished, arguments, said, as_json):
    done = fedopl("diagnose", finished.out, *arguments, *as_json)
    assert (done.code, done.out, done.err) == (1, "", f"fedopl: {said}\n")


def test_a_folder_without_a_run_ends_in_one_line(tmp_path):
    done = fedopl("diagnose", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("fedopl: ")
    assert done.err.count("\n") == 1
    assert fedopl("diagnose", tmp_path, "--constant", "much").code == 2


def test_the_installed_command_says_the_same_again(diagnosed):
    assert installed("diagnose", diagnosed).out == fedopl("diagnose", diagnosed).out
