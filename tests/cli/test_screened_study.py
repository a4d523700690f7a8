"""A study file that has clients find which features act together: every verb copes with it."""

import json

import numpy as np
import pytest

from fedopl.client.client_file import read_client
from fedopl.engines import in_process
from fedopl.engines.folder_doors import door_of
from fedopl.study.study_file import read_study
from tiny_study import fedopl, write_csv, write_tiny

SCREENED = """folds = 2

[evaluation]
share = 0.25

[basis]
screened_pairs = 2
knots = { age = [50, 60, 70], severity = [-1, 0, 1] }
"""


def table_of(seed, n_rows=600):
    rng = np.random.default_rng(seed)
    age, severity = rng.normal(60, 9, n_rows), rng.normal(0, 1, n_rows)
    alone, new = rng.random((2, n_rows)) < 0.5
    gain = 10 + new * (age - 60) / 9 * severity + rng.normal(0, 0.5, n_rows)
    return {
        "age": age.round(3),
        "severity": severity.round(3),
        "living": ["alone" if flag else "with others" for flag in alone],
        "arm": ["new" if flag else "usual" for flag in new],
        "gain": gain.round(3),
    }


def written(folder, settings):
    tiny = write_tiny(folder)
    tiny.add(settings)
    for seed, name in enumerate(("north", "south", "west")):
        write_csv(tiny.table(name), table_of(seed))
    return tiny


@pytest.fixture(scope="module")
def screened(tmp_path_factory):
    tiny = written(tmp_path_factory.mktemp("screened") / "tiny", SCREENED)
    done = tiny.run()
    assert (done.code, done.err) == (0, "")
    return tiny


def test_the_run_has_the_pair_and_says_so(screened):
    assert json.loads((screened.out / "study.json").read_text())["basis"]["found_pairs"] == [
        ["age", "severity"]
    ]
    explained = fedopl("explain", screened.out)
    assert "Of 3 pairs of features, 1 was found to predict outcomes better together" in (
        " ".join(explained.text.split())
    )
    told = fedopl("explain", screened.out, "--json").json()
    assert told["terms"]["found_pairs"] == [["age", "severity"]]
    page = (screened.out / "report.html").read_text(encoding="utf-8")
    assert "Which features act together" in page
    agreed, _ = read_study(screened.study)
    assert agreed.digest.hex() in page  # which clients can compare with their own
    assert "pairs of features" in page


def test_it_is_resumed_valued_again_and_counted(screened):
    again = screened.run("--resume")
    assert (again.code, again.err) == (0, "")
    folders = ("--study", screened.study, "--clients", screened.clients)
    valued = fedopl("evaluate", screened.out / "policy.json", *folders)
    assert (valued.code, valued.err) == (0, "")
    ledger = fedopl("ledger", screened.clients / "north", "--lifetime").text
    assert "studies: 2 of 20 answered" in ledger


def test_the_preview_names_pairs_and_check_counts_what_may_come(screened):
    preview = fedopl("preview", screened.study, screened.clients / "north")
    assert "ScreenProducts → ProductStatistics" in preview.text
    assert "age × severity" in preview.text
    assert "adds sums of terms\n" in screened.check().out
    settings = screened.settings().read_text()
    screened.add("[limits]\nparameter_share = 0.029\n", screened.settings())
    try:
        assert "adds sums of terms, unless screening finds more than 1\n" in screened.check().out
    finally:
        screened.settings().write_text(settings)


def test_what_does_not_fit_is_refused_in_the_files_own_words(screened, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.add(SCREENED.replace("share = 0.25", "splits = 3"))
    assert "another split may find other pairs" in tiny.check().text
    tiny.edit("splits = 3", "share = 0.25")
    tiny.edit("screened_pairs = 2", 'pairs = [["age", "age"]]')
    assert "expected two features, each pair once" in tiny.check().text
    tiny.edit('["age", "age"]', '["age", "height"]')
    assert "'height' is no feature" in tiny.check().text


def started_anew(tiny):
    """Exchanges as over a network, where a node makes a door for each message."""
    agreed, _ = read_study(tiny.study)

    def exchange(self, queries):
        for name, content in queries.items():
            client = read_client(tiny.clients / name)
            pinned = client.pinned(agreed, client.read(agreed.table))
            yield name, door_of(agreed, client, pinned).handle(content)

    return exchange


def test_a_client_that_is_started_anew_for_every_trip_goes_on(screened, monkeypatch, tmp_path):
    tiny = written(tmp_path / "tiny", SCREENED)
    monkeypatch.setattr(in_process.InProcess, "exchange", started_anew(tiny))
    done = tiny.run()
    assert (done.code, done.err) == (0, "")
    both = [json.loads((one.out / "policy.json").read_text()) for one in (tiny, screened)]
    assert both[0] == both[1]


def test_fold_by_fold_it_goes_on_as_well(monkeypatch, tmp_path):
    text = SCREENED.replace("folds = 2", "folds = 3").replace(
        "share = 0.25", 'kind = "cross-fitted"'
    )
    tiny = written(tmp_path / "tiny", text)
    assert "adds sums of terms" in tiny.check().out
    preview = fedopl("preview", tiny.study, tiny.clients / "north").text
    assert "versions × actions × feature pairs (4, 2, 3)\nwithout fold 1 " in preview
    monkeypatch.setattr(in_process.InProcess, "exchange", started_anew(tiny))
    done = tiny.run()
    assert (done.code, done.err) == (0, "")
    basis = json.loads((tiny.out / "study.json").read_text())["basis"]
    assert basis["found_pairs"] == [["age", "severity"]]
    assert basis["found_by_fold"] == [[0]] * 4
    assert "uses only what was found without it" in " ".join(
        fedopl("explain", tiny.out).text.split()
    )
    again = tiny.run("--resume")
    assert (again.code, again.err) == (0, "")
