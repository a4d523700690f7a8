"""Every verb, with good input and with bad, in this process and as the installed command."""

import json
import os
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from pyarrow import parquet

from fedopl.cli.app import app
from fedopl.cli.before_run import template
from fedopl.client.client_file import read_client
from fedopl.client.client_settings import ClientFile
from fedopl.client.disclosure.ledger import Entry, FileLedger
from fedopl.engines.runs import load_run
from fedopl.study.study_file import StudyFile
from tiny_study import (
    CLIENT,
    FEDOPL,
    everything_in,
    fedopl,
    installed,
    rows,
    strict_json,
    write_csv,
    write_tiny,
)

VERBS = sorted(command.callback.__name__ for command in app.registered_commands)
HEAVY = (
    "numpy sklearn scipy matplotlib pyarrow narwhals pandas polars pydantic jinja2 duckdb "
    "sqlalchemy flwr numba vowpalwabbit"
).split()


def assert_plain(done):
    """What a pipe gets: text without escape codes, and nothing beside it."""
    assert done.code == 0, done.err
    assert done.err == ""
    assert "\x1b" not in done.out


# --- help -----------------------------------------------------------------------------------------


def test_help_of_every_verb_is_quick_because_it_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from fedopl.cli.app import app\n"
        f"for verb in {VERBS!r}:\n"
        "    try: app([verb, '--help'])\n"
        "    except SystemExit as end: assert not end.code, verb\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.count("Usage: ") == len(VERBS)
    assert "\x1b" not in done.stdout


def test_help_lists_every_verb_and_the_version_is_that_of_the_package():
    listed = fedopl("--help").out
    assert all(re.search(rf"\b{verb}\b", listed) for verb in VERBS)
    assert installed("--version").out == fedopl("--version").out == "fedopl 0.2.0\n"


# --- good input and bad ---------------------------------------------------------------------------


def good_commands(tiny, folder):
    """A call of every verb but those that have tests of their own."""
    run, study, clients = tiny.out, tiny.study, tiny.clients
    return {
        "init": ["init", folder / "new"],
        "schema": ["schema", "client"],
        "keys": ["keys", clients],
        "check": ["check", study, "--clients", clients],
        "preview": ["preview", study, clients / "north", "--brief"],
        "privacy": ["privacy", private_study(folder), "--rows", "60"],
        "cost": ["cost", study, "--rows", "40"],
        "run": ["run", study, "--clients", clients, "--out", folder / "again"],
        "evaluate": ["evaluate", folder / "policy.json", "--study", study, "--clients", clients],
        "report": ["report", run, "--out", folder / "report.html"],
        "compare": ["compare", run, folder / "copy"],
        "diagnose": ["diagnose", run],
        "explain": ["explain", run],
        "decide": ["decide", run, tiny.table(), "--out", folder / "decided.csv"],
        "export": ["export", run, "--to", "sql", "--out", folder / "policy.sql"],
        "ledger": ["ledger", clients / "north"],
        "certificates": ["certificates", folder / "keys", "--client", "north"],
    }


def private_study(folder):
    path = folder / "private.toml"
    path.write_text(
        'name = "s"\n[outcome]\ncolumn = "y"\ndirection = "higher"\n[action]\ncolumn = "a"\n'
        'levels = ["p", "q"]\n[features]\nx = "number"\n[declared]\noverlap = 0.5\n'
        "[privacy]\nepsilon = 1\noutcome = [0, 1]\nranges = { x = [0, 10] }\n"
    )
    return path


BAD_COMMANDS = {
    "demo": ["demo", "/dev/null/demo"],
    "init": ["init", "/dev/null/new"],
    "schema": ["schema", "world"],
    "keys": ["keys", "nowhere"],
    "check": ["check", "no.toml"],
    "preview": ["preview", "no.toml", "north"],
    "privacy": ["privacy", "no.toml"],
    "cost": ["cost", "no.toml"],
    "aggregate": ["aggregate", "nowhere", "--server", "https://127.0.0.1:1"],
    "run": ["run", "no.toml"],
    "evaluate": ["evaluate", "no.json"],
    "budget": ["budget", "nowhere"],
    "report": ["report", "nowhere"],
    "compare": ["compare", "nowhere"],
    "diagnose": ["diagnose", "nowhere"],
    "explain": ["explain", "no.json"],
    "decide": ["decide", "no.json", "no.csv"],
    "export": ["export", "no.json", "--to", "sql"],
    "join": ["join", "nowhere", "west"],
    "server": ["server", "no.toml"],
    "certificates": ["certificates", "/dev/null/keys", "--client", "north"],
    "leave": ["leave", "nowhere", "west"],
    "node": ["node", "nowhere", "--serve"],
    "personal": ["personal", "nowhere", "west"],
    "ledger": ["ledger", "nowhere"],
    "reproduce": ["reproduce", "everything"],
}


# By the installed command, which imports for two seconds; all others run in this process.
IN_A_PROCESS = {"check", "decide", "run"}


def command(verb, arguments):
    return (installed if verb in IN_A_PROCESS else fedopl)(*arguments)


@pytest.mark.parametrize(
    "verb",
    sorted(
        set(VERBS)
        - {"demo", "reproduce", "budget", "join", "leave", "personal"}
        - {"server", "node", "aggregate"}
    ),
)
def test_the_command_does_what_the_verb_says(finished, tmp_path, verb):
    tiny = shutil.copytree(finished.folder, tmp_path / "tiny")
    shutil.copytree(finished.out, tmp_path / "copy")
    shutil.copy(finished.out / "policy.json", tmp_path)  # of which nobody knows the rows
    done = command(verb, good_commands(type(finished)(tiny), tmp_path)[verb])
    assert_plain(done)
    assert done.out.strip()


@pytest.mark.parametrize("verb", VERBS)
def test_the_command_ends_a_mistake_in_one_message(tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    done = command(verb, BAD_COMMANDS[verb])
    assert done.code in (1, 2)
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.code == 2 or re.fullmatch(r"fedopl: .+\n", done.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_output_is_readable_wherever_it_is_piped_to(finished, encoding):
    done = installed(
        "check",
        finished.study,
        "--clients",
        finished.clients,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        encoding="utf-8",
        errors="replace",
    )
    assert (done.code, done.err) == (0, "")
    assert "Ready" in done.out


def test_a_reader_who_has_had_enough_ends_the_command_quietly(finished):
    command = f"'{FEDOPL}' preview '{finished.study}' '{finished.clients / 'north'}' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


# --- start ----------------------------------------------------------------------------------------


def test_init_writes_both_examples_and_never_over_anything(tmp_path):
    done = fedopl("init", tmp_path)
    places = [tmp_path / "study.toml", tmp_path / "clients" / "north" / "client.toml"]
    assert done.out.splitlines() == [str(path) for path in places]
    before = everything_in(tmp_path)
    again = fedopl("init", tmp_path)
    assert again.code == 1
    assert "is there already" in again.err
    assert everything_in(tmp_path) == before


def keys_of(schema, definitions):
    """Every key that a schema names, through its references."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from keys_of(part, definitions)
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from keys_of(inner, definitions)


@pytest.mark.parametrize(("kind", "model"), [("study", StudyFile), ("client", ClientFile)])
def test_the_schema_is_json_schema_2020_and_says_what_the_model_takes(kind, model):
    schema = fedopl("schema", kind).json()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == f"fedopl {kind}.toml"
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(model.model_fields)
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(schema))
    names = {reference.removeprefix("#/$defs/") for reference in references}
    assert names == set(schema["$defs"])


@pytest.mark.parametrize("kind", ["study", "client"])
def test_the_example_shows_every_key_of_the_schema(kind):
    schema = fedopl("schema", kind).json()
    text = template(f"{kind}.toml")
    for key in set(keys_of(schema, schema["$defs"])):
        assert re.search(rf"(?m)^[# ]*\[?{key}\]?\b|\b{key} =", text), key


def test_the_schema_takes_labels_that_are_numbers_as_the_file_does():
    levels = fedopl("schema").json()["$defs"]["Action"]["properties"]["levels"]
    assert set(levels["items"]["type"]) == {"string", "number", "boolean"}


# --- look first -----------------------------------------------------------------------------------


def test_check_as_json_says_what_the_text_says(tiny):
    done = tiny.check("--json")
    assert_plain(done)
    found = done.json()
    assert found["ready"] is True
    assert {name: client["rows"] for name, client in found["clients"].items()} == {
        "north": 160,
        "south": 160,
        "west": 160,
    }
    assert set(found["clients"]["north"]["support"]) == {"usual", "new"}


def test_check_and_preview_write_nothing(tiny):
    before = everything_in(tiny.folder)
    tiny.check()
    fedopl("preview", tiny.study, tiny.clients / "north", "--json")
    assert everything_in(tiny.folder) == before


def test_brief_preview_has_the_shapes_and_not_the_numbers(finished):
    arguments = ["preview", finished.study, finished.clients / "north"]
    whole, brief = fedopl(*arguments).out, fedopl(*arguments, "--brief").out
    assert "sums: folds × actions × regression × regression (5, 2, 5, 5)" in brief
    assert len(brief) < len(whole) / 3
    assert all(line in whole.splitlines() for line in brief.splitlines())


# --- learn ----------------------------------------------------------------------------------------


def test_a_run_as_json_is_the_run_in_the_folder(finished):
    said = strict_json((finished.folder / "said.json").read_text())
    run = load_run(finished.out)
    assert said["verdict"] == run.verdict
    assert said["digest"] == run.study.digest.hex()
    assert [row["value"] for row in said["values"]] == [
        row.estimate.value for row in run.values.rows
    ]
    assert said["report"] == str(finished.out / "report.html")


def test_threads_change_nothing(finished, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    assert_plain(tiny.run("--threads", "3"))
    for name in ("policy.json", "values.csv", "gains.csv", "rounds.jsonl"):
        assert (tiny.out / name).read_bytes() == (finished.out / name).read_bytes()


def test_without_out_the_run_is_named_by_the_study(tiny, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    tiny.edit('"Tiny"', '"Drugs & coaching: A/B"')
    assert_plain(fedopl("run"))
    assert (tiny.folder / "runs" / "drugs-coaching-a-b" / "policy.json").is_file()


def test_a_folder_that_is_not_empty_is_not_written_to(tiny):
    tiny.out.mkdir()
    (tiny.out / "mine.txt").write_text("mine")
    done = tiny.run()
    assert done.code == 1
    assert "is not empty; --resume continues the run in it, --out names another" in done.err
    assert everything_in(tiny.out) == {"mine.txt": b"mine"}


def test_a_run_of_another_study_is_not_gone_on_with_and_not_changed(tiny):
    assert tiny.run().code == 0
    before = everything_in(tiny.out)
    tiny.edit('"Tiny"', '"Another"')
    done = tiny.run("--resume")
    assert done.code == 1
    assert "holds a run of another study" in done.err
    assert everything_in(tiny.out) == before


def test_a_finished_run_that_is_gone_on_with_is_the_same_run(tiny):
    assert tiny.run().code == 0
    before = everything_in(tiny.out)
    assert_plain(tiny.run("--resume"))
    after = everything_in(tiny.out)
    assert {name for name in after if after[name] != before.get(name)} <= {"run.json"}


def test_one_policy_is_valued_as_in_its_run_and_two_are_compared(finished, tmp_path):
    tiny = type(finished)(shutil.copytree(finished.folder, tmp_path / "tiny"))
    shutil.rmtree(tiny.out)
    tiny.add("\n[evaluation]\nshare = 0.25\n")
    assert tiny.run().code == 0
    common = ["--study", tiny.study, "--clients", tiny.clients, "--json"]
    policy = tiny.out / "policy.json"
    alone = fedopl("evaluate", policy, *common)
    assert_plain(alone)
    values = {(row["policy"], row["client"]): row["value"] for row in alone.json()["values"]}
    run = load_run(tiny.out)
    assert values[str(policy), "global"] == run.values.of("learned").value
    content = json.loads(policy.read_text())
    content["scores"][0]["intercept"] += 0.5
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content))
    both = fedopl("evaluate", policy, other, *common)
    assert_plain(both)
    assert str(other) in {row["against"] for row in both.json()["gains"]}


def test_a_policy_of_another_study_is_not_valued(finished, tmp_path):
    content = json.loads((finished.out / "policy.json").read_text())
    content["actions"] = ["usual", "newest"]
    (tmp_path / "other.json").write_text(json.dumps(content))
    done = fedopl(
        "evaluate",
        tmp_path / "other.json",
        "--study",
        finished.study,
        "--clients",
        finished.clients,
    )
    assert done.code == 1
    assert "its actions or features are not the study's" in done.err


# --- use the result -------------------------------------------------------------------------------


def test_report_writes_the_same_page_again(finished, tmp_path):
    done = fedopl("report", finished.out, "--out", tmp_path / "deep" / "page.html")
    assert_plain(done)
    page = tmp_path / "deep" / "page.html"
    assert done.out == f"{page}\n"
    assert page.read_bytes() == (finished.out / "report.html").read_bytes()


def test_compare_names_what_was_set_differently(finished, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.edit('"Tiny"', '"Tiny"\nseed = 7')
    assert tiny.run().code == 0
    done = fedopl("compare", finished.out, tiny.out, "--json")
    assert_plain(done)
    found = done.json()
    assert found["settings"] == {"seed": {str(finished.out): 0, str(tiny.out): 7}}
    assert set(found["runs"]) == {str(finished.out), str(tiny.out)}
    text = fedopl("compare", finished.out, tiny.out).out
    assert "seed" in text
    assert "fedopl evaluate" in text


def test_explain_says_the_same_of_a_run_and_of_its_policy_but_for_the_step(finished):
    whole, alone = (
        fedopl("explain", path, "--json").json()
        for path in (finished.out, finished.out / "policy.json")
    )
    assert (whole["step"], alone["step"]) == ("standard deviation", "unit")
    (name,) = whole["effects"]
    assert all(
        whole["effects"][name][feature] * alone["effects"][name][feature] > 0
        for feature in alone["effects"][name]
    )
    assert_plain(fedopl("explain", finished.out, "--top", "1"))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_decide_adds_the_actions_the_policy_would_take(finished, tmp_path, ending):
    out = tmp_path / f"decided.{ending}"
    done = fedopl("decide", finished.out, finished.table(), "--out", out, "--json")
    assert_plain(done)
    if ending == "parquet":
        table = parquet.read_table(out).to_pandas().astype({"age": float, "severity": float})
    else:
        table = pd.read_csv(out)
    data = read_client(finished.clients / "north").read(load_run(finished.out).study.table)
    policy = load_run(finished.out).policy
    expected = [policy.action_names[code] for code in policy.decide(data.contexts)]
    assert table["action"].tolist() == expected
    counts = done.json()["counts"]
    assert counts == {name: expected.count(name) for name in policy.action_names}


def test_decide_goes_by_the_clients_own_names_and_leaves_doubts_blank(finished, tmp_path):
    table = rows(seed=9)
    own = {
        "years": table["age"],
        "severity": ["", *table["severity"][1:]],
        "living": [label.upper() for label in table["living"]],
    }
    write_csv(tmp_path / "new.csv", own)
    (tmp_path / "client.toml").write_text(
        f'{CLIENT}[columns]\nage = "years"\n'
        '[labels.living]\nALONE = "alone"\n"WITH OTHERS" = "with others"\n'
    )
    arguments = ["decide", finished.out, tmp_path / "new.csv", "--client", tmp_path / "client.toml"]
    refused = fedopl(*arguments)
    assert refused.code == 1
    assert "'severity' 1 missing" in refused.err
    assert "--undecided blank" in refused.err
    assert not (tmp_path / "new-decided.csv").exists()
    done = fedopl(*arguments, "--undecided", "blank", "--column", "what to do")
    assert_plain(done)
    assert "left blank: 1 rows" in done.out
    decided = pd.read_csv(tmp_path / "new-decided.csv")["what to do"]
    assert decided.isna().tolist() == [True] + [False] * 159


def test_the_ledger_has_a_line_for_every_answer(finished):
    entries = fedopl("ledger", finished.clients / "north", "--json").json()
    run = load_run(finished.out)
    assert [entry["query"] for entry in entries] == [latest.query for latest in run.rounds]
    assert [entry["n_bytes"] for entry in entries] == [
        latest.received["north"] for latest in run.rounds
    ]
    done = fedopl("ledger", finished.clients / "north" / "client.toml")
    assert_plain(done)
    assert f"{len(entries)} answers, 0 of them refusals" in done.out


def test_an_answer_of_many_arrays_leaves_the_ledgers_other_columns_whole(tiny):
    entry = Entry(
        when="2026-11-16T05:24:58.792+00:00",
        study="a51775670f7fdeec",
        exchange=3,
        query="CompareModels",
        answer="ModelShifts",
        reason="",
        shapes={f"a_long_name_{place}": [5, 3] for place in range(12)},
        norms={},
        n_bytes=238,
        sha256="232b0681f8343390",
        query_sha256="",
    )
    FileLedger(read_client(tiny.clients / "north").ledger_path).append(entry)
    said = fedopl("ledger", tiny.clients / "north").out
    assert "2026-11-16 05:24:58   a5177567          3   CompareModels   ModelShifts" in said
    assert "a_long_name_3 5×3 and 8 more" in said
    assert "…" not in said


def test_a_client_that_said_nothing_has_an_empty_ledger(tiny):
    assert fedopl("ledger", tiny.clients / "west").out == "Nothing has left this client yet.\n"
    assert fedopl("ledger", tiny.clients / "west", "--json").json() == []


def test_half_a_line_that_a_killed_process_left_in_the_ledger_is_not_read(tiny):
    assert tiny.run().code == 0
    path = tiny.clients / "north" / "ledger.jsonl"
    whole = fedopl("ledger", tiny.clients / "north").out
    path.write_bytes(path.read_bytes() + b'{"when": "2025-01-')
    assert fedopl("ledger", tiny.clients / "north").out == whole
    assert tiny.run("--resume").code == 0


@pytest.mark.parametrize("name", ["global", "a\x1b[31mred", "two\nlines", ""])
def test_a_client_cannot_have_a_name_that_misleads(tiny, name):
    tiny.edit("[data]", f"name = {json.dumps(name)}\n[data]", tiny.settings())
    for done in (tiny.check(), tiny.run()):
        assert done.code == 1
        assert f"{tiny.settings()}, line 1: name" in done.text


def test_explain_draws_a_tree_with_what_its_leaves_are_worth(tiny):
    tiny.add('[policy]\nkind = "tree"\n[tree]\ndepth = 1\n[evaluation]\nshare = 0.25\n')
    assert tiny.run().code == 0
    whole, alone = (fedopl("explain", path) for path in (tiny.out, tiny.out / "policy.json"))
    for done in (whole, alone):
        assert_plain(done)
    question, yes, no = alone.out.splitlines()
    assert question.startswith("severity ≤ ")
    assert (yes, no) == ("├─ yes: 'usual'", "└─ no: 'new'")
    assert "├─ yes: 'usual'   " in whole.out
    assert "% of people" in whole.out
    assert "expected gain per decision ± standard error" in whole.out
    told = fedopl("explain", tiny.out, "--json").json()
    assert told["tree"]["question"] == question
    assert told["tree"]["yes"]["values"].keys() == {"usual", "new"}
    assert fedopl("explain", tiny.out / "policy.json", "--json").json()["tree"]["no"] == {
        "action": "new"
    }


def test_a_preview_cuts_no_number_off_however_many_columns_there_are(tiny):
    knots = ", ".join(str(30 + 2 * n) for n in range(12))
    tiny.add(f'[basis]\nkind = "hinges"\n[basis.knots]\nage = [{knots}]\n')
    tiny.add("[limits]\nparameter_share = 10\n", tiny.settings())
    arguments = ["preview", tiny.study, tiny.clients / "north"]
    done = fedopl(*arguments)
    assert "…" not in done.out
    assert "age above 52" in done.out
    brief = fedopl(*arguments, "--brief").out
    assert "Terms: age, severity, living=alone, age above 30, age above 32" in brief
