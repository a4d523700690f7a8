"""The demo: a complete example, run, and run again."""

import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest

from fedopl.analysis.advice import LEVEL, three_ways
from fedopl.cli.run_summary import _left, _over_alone
from fedopl.client.client_file import read_client
from fedopl.demo.hospitals import ODD, SMALL
from fedopl.demo.rand_hie import SITES
from fedopl.demo.writing import write_demo
from fedopl.engines.runs import load_run
from fedopl.results.value_tables import LOCAL, GainTable, PersonalTable
from fedopl.study.study_file import read_study
from tiny_study import everything_in, fedopl

SAME = ("policy.json", "values.csv", "gains.csv", "rounds.jsonl", "report.html")


def test_the_demo_says_in_three_lines_what_joining_brings(demo):
    said = (demo / "said.txt").read_text()
    together, alone, left, report = [line for line in said.splitlines() if line]
    assert together.startswith("Together: The learned policy beats the best constant arm")
    assert alone.startswith("Over learning alone: coast +")
    assert "; island does better with its personal policy, +" in alone
    assert alone.endswith(" over the shared one.")
    assert left.startswith("What left: no row; from each client 10 answers with ")
    assert report == f"The report is {demo / 'run' / 'report.html'}"
    assert (demo / "run" / "report.html").is_file()


def test_every_small_hospital_surely_gains_by_joining(demo):
    record = load_run(demo / "run")
    over_alone = {row.client: row.interval[0] for row in record.gains.rows if row.against == LOCAL}
    assert all(over_alone[name] > 0 for name in SMALL if name != ODD)
    assert over_alone[ODD] < 0
    assert record.refusals == ()


def test_the_demo_says_of_personal_policies_what_its_report_says(demo):
    record = load_run(demo / "run")
    best = [name for name, ways in three_ways(record).items() if ways.decision == "personal"]
    assert best == [ODD]
    assert f"For {ODD}, its personal policy is best." in fedopl("diagnose", demo / "run").out
    said = (demo / "said.txt").read_text()
    low, high = record.personal.over(record.chosen, ODD).interval(LEVEL)
    assert f"(98.3 % interval {low:.2f} to {high:.2f}) over the shared one" in said
    # Without its own rows alone being worse, nobody says that the personal policy is best.
    rows = tuple(
        replace(row, estimate=replace(row.estimate, standard_error=1.0))
        if (row.against, row.client) == (LOCAL, ODD)
        else row
        for row in record.personal.rows
    )
    unsure = replace(record, personal=PersonalTable(rows))
    assert "personal policy" not in _over_alone(unsure)


def test_what_the_demo_says_has_left_is_in_the_ledgers(demo):
    said = (demo / "said.txt").read_text()
    listed = fedopl("ledger", demo / "clients" / "west", "--json").json()
    whole = sum(math.prod(size) for entry in listed for size in entry["shapes"].values())
    n_answers, n_numbers = re.search(r"each client (\d+) answers with ([\d,]+)", said).groups()
    assert int(n_answers) == len(listed)
    # Of symmetric matrices a triangle is sent; each answer has a head beside its numbers.
    n_bytes, numbers = sum(entry["n_bytes"] for entry in listed), int(n_numbers.replace(",", ""))
    assert numbers < whole
    assert 0 < n_bytes - 8 * numbers < 150 * len(listed)


def test_answers_in_other_studies_are_not_counted_among_the_demos(demo, tmp_path):
    folder = shutil.copytree(demo, tmp_path / "again")
    other = folder / "other.toml"
    other.write_text((folder / "study.toml").read_text().replace("seed = 1", "seed = 2"))
    assert fedopl("run", other, "--clients", folder / "clients", "--out", folder / "two").code == 0
    record = load_run(folder / "run")
    assert _left(record, folder / "clients").startswith("no row; from each client 10 answers with ")


def test_where_nothing_is_known_the_demo_does_not_say_what_joining_brings(demo):
    record = load_run(demo / "run")
    silent = replace(record, gains=GainTable(()))
    assert _over_alone(silent) == "it is not known."


def test_the_private_demo_learns_from_totals_alone(tmp_path):
    done = fedopl("demo", tmp_path / "private", "--private")
    assert (done.code, done.err) == (0, "")
    together, alone, left, _ = [line for line in done.out.splitlines() if line]
    assert together.startswith("Together: The learned policy beats the best constant arm")
    assert "not known, since the server reads no numbers of a single client" in alone
    assert "with noise (ε = 2), under masks" in left


def test_only_the_eight_hospitals_have_a_private_demo(tmp_path):
    done = fedopl("demo", tmp_path / "private", "--private", "--data", "rand-hie")
    assert done.code == 1
    assert "--private: is for the eight hospitals" in done.err
    assert not (tmp_path / "private").exists()


def test_the_demo_again_in_the_same_folder_gives_the_same_bytes(demo):
    before = everything_in(demo / "run")
    done = fedopl("demo", demo, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json()["verdict"] == load_run(demo / "run").verdict
    after = everything_in(demo / "run")
    assert all(after[name] == before[name] for name in SAME)


def test_the_demo_leaves_another_study_alone(tiny):
    before = everything_in(tiny.folder)
    done = fedopl("demo", tiny.folder)
    assert done.code == 1
    assert "is there already with another content; name a new folder" in done.err
    assert everything_in(tiny.folder) == before


def test_the_demo_leaves_clients_of_another_study_alone(tiny):
    tiny.study.unlink()
    before = everything_in(tiny.folder)
    assert fedopl("demo", tiny.folder).code == 1
    assert everything_in(tiny.folder) == before


# --- the RAND experiment --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rand(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rand")
    write_demo(folder, "rand-hie")
    return folder


def test_on_real_data_the_learned_policy_is_not_said_to_beat_the_best_arm(tmp_path):
    done = fedopl("demo", tmp_path / "rand", "--data", "rand-hie", "--json")
    assert (done.code, done.err) == (0, "")
    verdict = done.json()["verdict"]
    assert verdict.startswith("The learned policy does not demonstrably beat the best constant arm")


def test_every_site_is_a_client_with_its_own_arms(rand):
    study, _ = read_study(rand / "study.toml")
    taken = {
        name: read_client(rand / "clients" / name).read(study.table).rows_per_action
        for name in SITES.values()
    }
    never = {
        name: [action for action, n in zip(study.actions, counts, strict=True) if not n]
        for name, counts in taken.items()
    }
    assert {name: arms for name, arms in never.items() if arms} == {
        "dayton": ["95"],
        "seattle": ["50"],
    }
    assert sum(int(counts.sum()) for counts in taken.values()) == 5638


def test_dayton_calls_its_deductible_plan_by_another_name(rand):
    own = pd.read_csv(rand / "clients" / "dayton" / "year1.csv", dtype=str)["plan"]
    assert {"100", "deductible"} < set(own)
    assert "95" not in set(own)
    study, _ = read_study(rand / "study.toml")
    data = read_client(rand / "clients" / "dayton").read(study.table)
    taken = data.rows_per_action[study.actions.index("deductible")]
    assert taken == own.isin(["100", "deductible"]).sum()


def test_families_share_a_plan_and_go_together(rand):
    study, _ = read_study(rand / "study.toml")
    for name in SITES.values():
        table = pd.read_csv(rand / "clients" / name / "year1.csv")
        by_family = table.groupby("family")
        assert (by_family["plan"].nunique() == 1).all()
        assert (by_family["income"].nunique() == 1).all()
        data = read_client(rand / "clients" / name).read(study.table)
        assert data.groups.max() + 1 == table["family"].nunique()


def test_without_statsmodels_the_demo_says_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['statsmodels'] = None\n"
        f"sys.argv = ['fedopl', 'demo', {str(tmp_path / 'rand')!r}, '--data', 'rand-hie']\n"
        "from fedopl.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("fedopl: ")
    assert "pip install 'fedopl[examples]'" in done.stderr
    assert not (tmp_path / "rand").exists()
