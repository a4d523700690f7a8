"""Files of version 0.2.0 are read, or refused in a line that says what became of their keys."""

import csv
import json
import shutil
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

from tiny_study import fedopl

pytestmark = pytest.mark.usefixtures("without_figures")

HERE = Path(__file__).parent / "fixtures" / "written_by_0_2_0"
ROWS = HERE / "rows.csv"
DECISIONS = json.loads((HERE / "decisions.json").read_text(encoding="utf-8"))
RUNS = sorted((HERE / "runs").iterdir())
POLICIES = sorted((HERE / "policies").iterdir())
STUDIES = sorted((HERE / "studies").iterdir())
LEDGERS = sorted((HERE / "ledgers").iterdir())
PLAIN_STUDY, PLAIN_CLIENT = HERE / "studies" / "linear.toml", HERE / "clients" / "plain"
EVERY_LIMIT, OTHER_KEYS = HERE / "clients" / "every-limit", HERE / "clients" / "other-keys"
EVERY_REQUIREMENT = HERE / "studies" / "every-requirement.toml"

GONE = (
    *("value_queries", "value_policies", "value_noise", "withheld_answers", "dominance"),
    *("score_queries", "slope_queries", "descriptions", "count_queries", "cell_queries"),
    *("model_queries", "classifier_queries"),
)
LIMITS = tomllib.loads((EVERY_LIMIT / "client.toml").read_text(encoding="utf-8"))["limits"]
REQUIRED = tomllib.loads(EVERY_REQUIREMENT.read_text(encoding="utf-8"))["requires"]
GONE_REQUIREMENTS = [name for name in GONE if name in REQUIRED]


def by_name(paths):
    return {"argvalues": paths, "ids": [path.stem for path in paths]}


def is_refused(done, folder):
    """Whether a file in this folder was refused, in one line that names it and blames nobody."""
    assert "Traceback" not in done.text
    if done.code == 0:
        assert done.err == ""
        return False
    (line,) = done.err.splitlines()
    assert str(folder) in line
    assert "was changed" not in line  # nobody changed it
    return True


def says_what_became_of(keys, done, path):
    """There is a line for each of these keys, with the file and the key, and no other."""
    assert done.code == 1
    assert "Traceback" not in done.text
    lines = done.err.splitlines()
    assert len(lines) == len(keys)
    assert all(str(path) in line and "no longer" in line for line in lines)
    for key in keys:
        assert any(key in line for line in lines), key


def copied(folder, tmp_path):
    """A client's folder as it was at the client: its scores were there, and its file was its own.

    Scores are in a form of their own, which `ledger` does not read.
    """
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    (copy / "scores").mkdir()
    (copy / "client.toml").chmod(0o600)
    return copy


def decided(policy, out, *more):
    """What a policy decides of the rows; None if it is refused."""
    done = fedopl("decide", policy, ROWS, "--out", out, *more)
    if done.code:
        assert is_refused(done, policy)
        return None
    with out.open(newline="", encoding="utf-8") as file:
        return [row["action"] for row in csv.DictReader(file)]


# --- finished runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("run", **by_name(RUNS))
def test_a_run_has_a_report_again(run, tmp_path):
    page = tmp_path / "report.html"
    if not is_refused(fedopl("report", run, "--out", page), run):
        assert "<h1" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("run", **by_name(RUNS))
def test_a_run_is_explained_and_diagnosed(run):
    for verb in ("explain", "diagnose"):
        done = fedopl(verb, run)
        assert is_refused(done, run) or done.out


def test_runs_are_compared():
    done = fedopl("compare", *RUNS)
    assert is_refused(done, HERE / "runs") or all(str(run) in done.out for run in RUNS)


@pytest.mark.parametrize("run", **by_name(RUNS))
def test_a_run_decides_as_it_did(run, tmp_path):
    client = ("--client", "south") if run.name == "personal" else ()  # south shares its own
    found = decided(run, tmp_path / "decided.csv", *client)
    assert found in (None, DECISIONS[f"runs/{run.name}"].split(" "))


@pytest.mark.parametrize("run", **by_name(RUNS))
def test_the_policy_of_a_run_is_exported(run, tmp_path):
    out = tmp_path / "policy.sql"
    done = fedopl("export", run, "--to", "sql", "--out", out)
    assert is_refused(done, run) or "case" in out.read_text(encoding="utf-8").lower()


# --- saved policies -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", **by_name(POLICIES))
def test_a_saved_policy_decides_as_it_did(policy, tmp_path):
    found = decided(policy, tmp_path / "decided.csv")
    assert found == DECISIONS[f"policies/{policy.name}"].split(" ")


def test_there_is_a_saved_policy_of_every_kind():
    kinds = {json.loads(path.read_text(encoding="utf-8"))["kind"] for path in POLICIES}
    assert kinds == {"linear", "pairwise", "tree", "neural", "cautious", "bent"}


# --- ledgers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", **by_name(LEDGERS))
def test_a_ledger_is_listed_and_summed_up(ledger, tmp_path):
    client = copied(ledger, tmp_path)
    lines = (ledger / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    done = fedopl("ledger", client, "--json")
    if is_refused(done, client):
        return
    queries = [entry["query"] for entry in done.json()]
    assert queries == [json.loads(line)["query"] for line in lines]
    assert fedopl("ledger", client).code == 0
    lifetime = fedopl("ledger", client, "--lifetime")
    assert not is_refused(lifetime, client)
    assert "studies: 1 of 20 answered" in lifetime.out


def test_what_was_withheld_unlocked_and_promised_stays_in_a_ledger(tmp_path):
    unlocked = fedopl("ledger", copied(HERE / "ledgers" / "unlocked", tmp_path))
    assert "WITHHELD" in unlocked.out
    assert "LOCKED" in unlocked.out
    assert "unlock" in unlocked.out
    private = fedopl("ledger", copied(HERE / "ledgers" / "private", tmp_path), "--lifetime")
    assert "epsilon: 5 of 10 spent, at delta 1e-06" in private.out


# --- files that people wrote ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "study", **by_name([path for path in STUDIES if path != EVERY_REQUIREMENT])
)
def test_a_study_without_keys_that_are_gone_is_read(study):
    done = fedopl("preview", study, PLAIN_CLIENT, "--brief")
    assert not is_refused(done, study)


@pytest.mark.parametrize("name", ["plain", "kept-limits"])
def test_a_client_without_keys_that_are_gone_is_read(name, tmp_path):
    client = copied(HERE / "clients" / name, tmp_path)
    assert not is_refused(fedopl("ledger", client), client)
    assert not is_refused(fedopl("preview", PLAIN_STUDY, client, "--brief"), client)


def test_keys_beside_new_rows_are_read_with_a_strong_secret(tmp_path):
    client = copied(OTHER_KEYS, tmp_path)
    file = client / "client.toml"
    text = file.read_text(encoding="utf-8")
    text = text.replace('new_rows = "leave out"\n', "")
    file.write_text(text, encoding="utf-8")
    chosen = fedopl("ledger", client)
    assert is_refused(chosen, client)
    assert "32 random bytes" in chosen.err
    strong = sha256(b"made-up rows").hexdigest()
    file.write_text(text.replace("made-up rows need none", strong), encoding="utf-8")
    assert not is_refused(fedopl("ledger", client), client)
    assert not is_refused(fedopl("preview", PLAIN_STUDY, client, "--brief"), client)


@pytest.mark.parametrize("key", GONE)
def test_a_limit_that_is_gone_is_named_with_what_became_of_it(key, tmp_path):
    client = copied(PLAIN_CLIENT, tmp_path)
    file = client / "client.toml"
    text = f"{file.read_text(encoding='utf-8')}\n[limits]\n{key} = {LIMITS[key]}\n"
    file.write_text(text, encoding="utf-8")
    says_what_became_of([key], fedopl("ledger", client), file)


@pytest.mark.parametrize("key", GONE_REQUIREMENTS)
def test_a_requirement_that_is_gone_is_named_with_what_became_of_it(key, tmp_path):
    study = tmp_path / "study.toml"
    text = f"{PLAIN_STUDY.read_text(encoding='utf-8')}\n[requires]\n{key} = {REQUIRED[key]}\n"
    study.write_text(text, encoding="utf-8")
    says_what_became_of([key], fedopl("preview", study, PLAIN_CLIENT, "--brief"), study)


def test_new_rows_is_named_with_what_became_of_it(tmp_path):
    client = copied(OTHER_KEYS, tmp_path)
    says_what_became_of(["new_rows"], fedopl("ledger", client), client / "client.toml")


def test_of_all_limits_each_that_is_gone_is_named(tmp_path):
    client = copied(EVERY_LIMIT, tmp_path)
    says_what_became_of(GONE, fedopl("ledger", client), client / "client.toml")


def test_of_all_requirements_each_that_is_gone_is_named():
    done = fedopl("preview", EVERY_REQUIREMENT, PLAIN_CLIENT, "--brief")
    says_what_became_of(GONE_REQUIREMENTS, done, EVERY_REQUIREMENT)
