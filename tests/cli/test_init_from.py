"""A study drafted from tables: ready where guesses are right, and a question at every guess."""

import re
import tomllib

import numpy as np
import pandas as pd
import pytest

from fedopl.client.client_file import read_clients
from fedopl.client.drafted_text import EPSILON, DraftedPrivacy
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study_file import read_study
from tiny_study import everything_in, fedopl, strict_json

pytestmark = pytest.mark.usefixtures("without_figures")

N_ROWS = 400


def hospital(seed):
    """A table with a bit of everything."""
    rng = np.random.default_rng(seed)
    days = pd.to_datetime("2023-03-01") + pd.to_timedelta(rng.integers(0, 700, N_ROWS), unit="D")
    arm = rng.choice(["usual", "new"], N_ROWS)
    return pd.DataFrame(
        {
            "patient_id": rng.permutation(N_ROWS) + 1000,
            "age": rng.normal(60, 9, N_ROWS).round(1),
            "sex": rng.choice(["f", "m"], N_ROWS),
            "region": rng.integers(1, 5, N_ROWS),
            "smoker": rng.integers(0, 2, N_ROWS),
            "admitted": days,
            "diagnosis": [f"I{min(int(v), 40):02d}" for v in rng.gamma(2, 8, N_ROWS)],
            "ward": "B",
            "treatment": arm,
            "cost": (rng.gamma(2, 1000, N_ROWS) + 500 * (arm == "new")).round(2),
        }
    )


@pytest.fixture
def tables(tmp_path):
    paths = [tmp_path / "north.csv", tmp_path / "south.csv"]
    hospital(0).to_csv(paths[0], index=False)
    hospital(1).to_csv(paths[1], index=False, sep=";", decimal=",", encoding="utf-16")
    return paths


def ready(folder):
    checked = fedopl("check", folder / "study.toml", "--clients", folder / "clients")
    assert checked.code == 0, checked.text
    assert "Ready" in checked.out
    return checked


def test_a_draft_from_files_passes_the_check_and_asks_about_its_guesses(tmp_path, tables):
    folder = tmp_path / "study"
    done = fedopl("init", "--from", *tables, folder)
    assert done.code == 0, done.text
    ready(folder)
    study, _ = read_study(folder / "study.toml")
    agreed = study.table
    assert (agreed.action, agreed.reward, agreed.direction) == ("treatment", "cost", "lower")
    assert study.actions == ("new", "usual")
    assert agreed.numeric == ("age", "region", "smoker", "admitted")
    assert agreed.dates == {"admitted": "days since 2023-01-01"}
    assert (agreed.categorical["sex"], agreed.others) == (("f", "m"), {"diagnosis": "other"})
    assert (agreed.group, agreed.missing_reward) == (None, None)
    lines = (folder / "study.toml").read_text().splitlines()
    for what in ("direction", "levels", "region", "admitted", "diagnosis", "[features]"):
        (number,) = [n for n, line in enumerate(lines, start=1) if line.startswith(what)]
        assert "# CONFIRM: " in lines[number - 1]
        assert f"  line {number}: " in done.out
    assert "# patient_id: an id, which is no feature" in lines
    assert "# ward: the same in every row" in lines


def test_clients_say_how_their_files_are_written_and_keep_them_where_they_are(tmp_path, tables):
    fedopl("init", "--from", *tables, tmp_path / "study")
    clients = read_clients(tmp_path / "study" / "clients")
    assert set(clients) == {"north", "south"}
    south = clients["south"].settings.data
    assert (south.encoding, south.delimiter, south.decimal) == ("utf-16", ";", ",")
    assert (clients["north"].path.parent / clients["north"].settings.data.file).samefile(tables[0])
    assert clients["north"].path.stat().st_mode & 0o077 == 0


def test_the_values_of_a_column_can_be_the_clients(tmp_path):
    whole = pd.concat([hospital(k).assign(site=f"St. {k}") for k in range(3)])
    whole.to_csv(tmp_path / "all.csv", index=False)
    folder = tmp_path / "study"
    done = fedopl("init", folder, "--from", tmp_path / "all.csv", "--client-column", "site")
    assert done.code == 0, done.text
    checked = ready(folder)
    assert set(read_clients(folder / "clients")) == {"St--0", "St--1", "St--2"}
    assert checked.out.count("400 rows") == 6  # all to learn from
    kept = pd.read_parquet(folder / "clients" / "St--1" / "rows.parquet")
    assert kept["cost"].tolist() == hospital(1)["cost"].tolist()
    assert (folder / "clients" / "St--1" / "rows.parquet").stat().st_mode & 0o077 == 0
    assert "site" not in read_study(folder / "study.toml")[0].table.feature_columns


@pytest.mark.parametrize(("n_gaps", "rule"), [(9, "drop"), (80, "indicator")])
def test_missing_values_repeated_ids_and_propensities_are_drafted_with_a_question(
    tmp_path, n_gaps, rule
):
    table = hospital(0)
    table.loc[:7, "cost"] = None
    table.loc[3:n_gaps, "age"] = None
    table["patient_id"] = table["patient_id"] // 4
    table["p"] = 0.5
    table.to_parquet(tmp_path / "north.parquet")
    folder = tmp_path / "study"
    assert fedopl("init", "--from", tmp_path / "north.parquet", folder).code == 0
    ready(folder)
    agreed = read_study(folder / "study.toml")[0].table
    assert (agreed.missing_reward, agreed.missing) == ("drop", rule)
    assert (agreed.group, agreed.propensity) == ("patient_id", "p")


def test_a_label_of_a_few_people_does_not_get_into_the_study(tmp_path):
    table = hospital(0)
    table.loc[:2, "sex"] = "somebody's own"
    table["name"] = [f"N{k // 3}" for k in range(N_ROWS)]  # three rows each
    table.to_csv(tmp_path / "north.csv", index=False)
    assert fedopl("init", "--from", tmp_path / "north.csv", tmp_path / "study").code == 0
    text = (tmp_path / "study" / "study.toml").read_text()
    assert "somebody" not in text
    assert "# name: labels of a few rows each" in text
    ready(tmp_path / "study")
    agreed = read_study(tmp_path / "study" / "study.toml")[0].table
    assert (set(agreed.categorical["sex"]), agreed.others["sex"]) == ({"f", "m", "other"}, "other")


def test_labels_in_a_text_stay_as_they_are_written(tmp_path):
    table = hospital(0).assign(zone=[f"0{k % 3}" for k in range(N_ROWS)], site="x")
    table.to_csv(tmp_path / "all.csv", index=False)
    for how in ((), ("--client-column", "site")):
        folder = tmp_path / f"study{len(how)}"
        assert fedopl("init", "--from", tmp_path / "all.csv", folder, *how).code == 0
        ready(folder)


def test_names_and_labels_may_have_any_sign(tmp_path):
    table = hospital(0).rename(columns={"sex": 'Größe "x" = #1'})
    table["dose of it, mg"] = np.where(np.arange(N_ROWS) % 2, 'it\'s "5"', "back\\slash")
    table.to_csv(tmp_path / "north.csv", index=False)
    assert fedopl("init", "--from", tmp_path / "north.csv", tmp_path / "study").code == 0
    ready(tmp_path / "study")
    agreed = read_study(tmp_path / "study" / "study.toml")[0].table
    assert agreed.categorical["dose of it, mg"] == ("back\\slash", 'it\'s "5"')


def test_columns_that_nobody_can_guess_are_asked_for_and_can_be_named(tmp_path):
    table = hospital(0).rename(columns={"treatment": "k", "cost": "z"})
    table.to_csv(tmp_path / "north.csv", index=False)
    start = ["init", "--from", tmp_path / "north.csv", tmp_path / "study"]
    done = fedopl(*start)
    assert done.code == 1
    assert "which column says what was done? --action; there are 'sex'" in done.err
    done = fedopl(*start, "--action", "k")
    assert "which column is the outcome? --outcome; there are" in done.err
    assert "there is no column 'arm'" in fedopl(*start, "--action", "arm").err
    assert "expected numbers that vary" in fedopl(*start, "--action", "k", "--outcome", "sex").err
    assert not (tmp_path / "study").exists()
    assert fedopl(*start, "--action", "k", "--outcome", "z").code == 0
    ready(tmp_path / "study")


def test_other_outcomes_are_no_features_and_columns_of_some_tables_are_named(tmp_path):
    hospital(0).assign(visit=1.0 * (np.arange(N_ROWS) % 3 > 0)).to_csv(
        tmp_path / "north.csv", index=False
    )
    hospital(1).assign(visit=1.0 * (np.arange(N_ROWS) % 2), extra=1).to_csv(
        tmp_path / "south.csv", index=False
    )
    fedopl(
        *("init", "--from", tmp_path / "north.csv", tmp_path / "south.csv", tmp_path / "study"),
        *("--outcome", "cost"),
    )
    text = (tmp_path / "study" / "study.toml").read_text()
    assert "# visit: an outcome, too, by its name" in text
    assert "# extra is not in every table" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("treatment,cost,age\n", "no rows; expected a header"),
        ("treatment,cost\n" + "a,1\nb,2\n" * 50, "no column is left that could be a feature"),
        ("treatment,cost,age\n" + "a,,1\nb,,2\n" * 50, "which column is the outcome? --outcome"),
        ("x\n1\n1\n", "which column says what was done? --action; there is none that could be"),
        ("treatment,cost,cost\na,1,2\n", "more than one column is called 'cost'"),
    ],
)
def test_a_table_that_no_study_can_be_made_of_is_refused_in_words(tmp_path, content, message):
    (tmp_path / "north.csv").write_text(content)
    done = fedopl("init", "--from", tmp_path / "north.csv", tmp_path / "study")
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("taken", ["study.toml", "clients/south/client.toml"])
def test_nothing_is_overwritten(tmp_path, tables, taken):
    path = tmp_path / "study" / taken
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    before = everything_in(tmp_path)
    done = fedopl("init", "--from", *tables, tmp_path / "study")
    assert (done.code, done.out) == (1, "")
    assert f"{path}: is there already" in done.err
    assert everything_in(tmp_path) == before


def test_programs_get_the_files_and_the_questions_by_line(tmp_path, tables):
    done = fedopl("init", "--from", *tables, tmp_path / "study", "--json")
    said = strict_json(done.out)
    assert str(tmp_path / "study" / "study.toml") in said["written"]
    assert "is lower better?" in said["confirm"].values()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--action", "x"], "need tables: add --from"),
        (["one", "two"], "expected one folder, came one, two"),
        (["--from", "nowhere.csv"], "nowhere.csv: the file is not there"),
        (["--from", "north.csv", "--client-column", "nothing"], "there is no 'nothing'"),
        (["--from", "north.csv", "--client-column", "patient_id"], "'patient_id' has 400 values"),
        (["--from", "north.csv", "south.csv", "--client-column", "sex"], "expected one table"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(tmp_path, tables, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    before = everything_in(tmp_path)
    done = fedopl("init", *arguments)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert everything_in(tmp_path) == before


# --- differential privacy -------------------------------------------------------------------------


def visits(n_rows, seed=0, **more):
    rng = np.random.default_rng(seed)
    arm = rng.choice(["usual", "new"], n_rows)
    frail = rng.gamma(3, 1.2, n_rows).round(1)
    found = {
        "age": rng.normal(64, 12, n_rows).round(),
        "frail": frail,
        "home alone": rng.integers(0, 2, n_rows),
        "treatment": arm,
        "outcome": (10 + 2 * (arm == "new") * (frail > 4) + rng.normal(0, 3, n_rows)).round(1),
    }
    return pd.DataFrame(found | more)


def drafted_from(folder, table, *arguments):
    table.to_csv(folder / "north.csv", index=False)
    done = fedopl("init", "--from", folder / "north.csv", folder / "study", *arguments)
    return done, folder / "study" / "study.toml"


def test_a_private_draft_runs_as_it_is(tmp_path):
    done, path = drafted_from(tmp_path, visits(6000), "--private")
    assert done.code == 0, done.text
    study, _ = read_study(path)
    assert study.privacy.epsilon == 8
    assert study.privacy.ranges == {"age": (40, 90), "frail": (0, 10), "home alone": (0, 1)}
    low, high = study.privacy.outcome
    assert low < 4 < 18 < high
    assert study.declared.overlap == pytest.approx(0.12)
    # Knots follow from ranges, not from rows; a flag bends nowhere.
    assert study.basis.knots == {"age": (53, 65, 77), "frail": (2.6, 5, 7.4)}
    clients = path.parent / "clients"
    ready(path.parent)
    shown = fedopl("preview", path, clients / "north", "--brief")
    setting = PrivateSetting(study)
    for name in ("squares", "products", "values"):
        assert f"noise ± {setting.deviation(name):.3g}" in shown.out
    assert "Everything but the number of rows has noise" in shown.out
    run = fedopl("run", path, "--clients", clients, "--out", tmp_path / "run")
    assert run.code == 0, run.text
    assert "differential privacy" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("n_rows", [400, 6000])
def test_a_draft_is_exact_unless_noise_is_asked_for_and_says_what_noise_would_cost(
    tmp_path, n_rows
):
    for arguments in ((), ("--exact",), ("--private",)):
        folder = tmp_path / "".join(("draft", *arguments))
        folder.mkdir()
        done, path = drafted_from(folder, visits(n_rows), *arguments)
        assert done.code == 0, done.text
        text = path.read_text()
        assert (read_study(path)[0].privacy is not None) == (arguments == ("--private",))
        assert ("# Contract exact: only the sums that" in text) == (not arguments)
        said = " ".join(line.removeprefix("# ") for line in text.splitlines())
        assert ("epsilon = 8 would add noise of ±" in said) == (not arguments)
        assert "a policy of its own" not in text  # there is one client


def test_the_commented_block_of_a_draft_is_what_a_private_draft_declares(tmp_path):
    texts = {}
    for arguments in ((), ("--private",)):
        folder = tmp_path / "".join(("draft", *arguments))
        folder.mkdir()
        texts[arguments] = drafted_from(folder, visits(6000), *arguments)[1].read_text()
    commented = texts[()].split("# [privacy]")[1].split("\n\n")[0]
    opened = "[privacy]" + re.sub("(?m)^#( |$)", "", commented)
    agreed = tomllib.loads(texts["--private",])
    assert tomllib.loads(opened) == {key: agreed[key] for key in ("privacy", "declared")}


def test_a_private_draft_from_several_tables_has_personal_policies_at_home(tmp_path):
    for seed, name in enumerate(("north", "south")):
        visits(6000, seed).to_csv(tmp_path / f"{name}.csv", index=False)
    tables = [tmp_path / "north.csv", tmp_path / "south.csv"]
    drafted = ("init", "--from", tables[0], "--from", tables[1], tmp_path / "study")
    done = fedopl(*drafted, "--private")
    assert done.code == 0, done.text
    study, _ = read_study(tmp_path / "study" / "study.toml")
    assert study.privacy is not None
    assert study.personalises_at_home
    text = (tmp_path / "study" / "study.toml").read_text()
    assert "a policy of its own, which stays there and has no noise" in text


def test_weights_and_noise_do_not_go_together(tmp_path):
    table = visits(6000, sampling_weight=np.linspace(1, 2, 6000))
    _, path = drafted_from(tmp_path, table)
    assert read_study(path)[0].privacy is None
    assert "# [privacy] cannot be had: rows have weights." in path.read_text()
    other = tmp_path / "other"
    other.mkdir()
    done, _ = drafted_from(other, table, "--private")
    assert done.code == 1
    assert "take out 'sampling_weight'" in done.err


def test_persons_with_several_rows_are_promised_something_as_persons(tmp_path):
    table = visits(6000, person_id=np.arange(6000) // 2)
    _, path = drafted_from(tmp_path, table, "--private")
    plan = read_study(path)[0].privacy
    assert (plan.unit, plan.most_rows_per_person) == ("person", 2)


@pytest.mark.parametrize("overlap", [0.5, 0.05])
def test_with_as_many_rows_as_a_draft_says_intervals_are_as_narrow(overlap):
    plan = PrivacyPlan(epsilon=EPSILON, outcome=(0, 30))

    def drafted(n_rows):
        return DraftedPrivacy(plan=plan, overlap=overlap, sizes=[n_rows] * 3, spread=6.0)

    (times,) = re.findall(r"would need ([\d.e+]+) times as many rows", drafted(1000).price)
    more = drafted(round(1000 * float(times)))
    by_sampling = 36 / drafted(1000).n_held_out
    assert 36 / more.n_held_out + more.noise_of_value**2 == pytest.approx(by_sampling, rel=0.05)


def test_a_draft_without_a_basis_says_how_many_rows_one_needs_and_that_many_are_enough(tmp_path):
    folders = [tmp_path / name for name in ("few", "enough", "private")]
    for folder in folders:
        folder.mkdir()
    said = drafted_from(folders[0], visits(22), "--exact")[1].read_text()
    assert "# No [basis], so all effects are linear." in said
    needed, fewest = re.search(r"about (\d+) rows .* the smallest has (\d+)", said).groups()
    assert int(fewest) == 22 < int(needed)
    said = drafted_from(folders[1], visits(int(needed), seed=1), "--exact")[1].read_text()
    assert "[basis]" in said
    assert "No [basis]" not in said
    said = drafted_from(folders[2], visits(100), "--private")[1].read_text()
    assert "with noise, rows are enough for" in said
