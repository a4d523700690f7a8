"""Who may get what, as a study says it: read, checked before anything is asked, and hashed."""

import pytest
from typer.testing import CliRunner

import fedopl
from fedopl.base.errors import OptionError
from fedopl.cli.app import app
from fedopl.engines.check_study import check
from fedopl.policies.allowed.conditions import read_condition
from fedopl.policies.allowed.permissions import Never
from fedopl.study.study_file import read_study

pytestmark = pytest.mark.usefixtures("without_figures")

STUDY = """
name = "kidneys"
[outcome]
column = "y"
direction = "higher"
[action]
column = "drug"
levels = ["A", "B", "C"]
[features]
kidney = "number"
age = "number"
ward = ["icu", "er", "day"]
[policy]
"""


@pytest.fixture
def study_of(tmp_path):
    def _study_of(rules, study=STUDY):
        (tmp_path / "study.toml").write_text(study + rules)
        return read_study(tmp_path / "study.toml")[0]

    return _study_of


def _standard(text):
    return Never(action="A", when=text).when


def test_a_condition_is_written_one_way_however_it_was_written():
    written = {
        "kidney<30 and ward in ('icu',\"er\")": "kidney < 30 and ward in icu, er",
        "blood pressure >= 140": "blood pressure >= 140",
        "'sex and age' == 3": '"sex and age" = 3',
        "age   is   missing": "age is missing",
    }
    for text, same in written.items():
        assert _standard(text) == same == _standard(same)


@pytest.mark.parametrize(
    "text",
    [
        *("__import__('os').system('x')", "a <", "< 3", "a < 3 or b > 2", "a b", "a = 1, 2"),
        *("a < 3 and", "a in (1", "a is odd", "a < 'b", "lambda: 0"),
    ],
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError, match=r"cannot be read|several values"):
        read_condition(text)


MISTAKES = {
    "unknown action": ('never = [{action = "D", when = "kidney < 30"}]', "'D' is no action"),
    "unknown feature": ('never = [{action = "A", when = "liver < 30"}]', "no feature 'liver'"),
    "unknown level": (
        'never = [{action = "A", when = "ward in icu, ed"}]',
        "'ed' is no level of 'ward'; it has 'icu', 'er', 'day'",
    ),
    "order of labels": ('never = [{action = "A", when = "ward < icu"}]', "compare it by = or in"),
    "a number in a list": ('never = [{action = "A", when = "age in 3, 4"}]', "is a number"),
    "a label for a number": ('never = [{action = "A", when = "age < old"}]', "expected one beside"),
    "unmarked gaps": ('never = [{action = "A", when = "age is missing"}]', "one more value"),
    "nobody": ('never = [{action = "A", when = "age < 3 and age > 4"}]', "holds for nobody"),
    "code": ('never = [{action = "A", when = "exit()"}]', "cannot be read"),
    "action of a client": ('only = {north = ["A", "X"]}', "'X' is no action"),
    "nothing at a client": ("only = {north = []}", "only.north"),
    "nothing left at a client": (
        'only = {north = ["A"]}\nnever = [{action = "A", when = "kidney < 30"}]',
        "no action is left at client 'north' where kidney < 30",
    ),
    "nothing left somewhere": (
        'never = [{action = "A", when = "kidney < 30"}, {action = "B", when = "age > 80"}, '
        '{action = "C", when = "kidney <= 20 and ward = icu"}]',
        "no action is left where kidney < 30 and age > 80 and kidney <= 20 and ward = icu",
    ),
    "nothing left for anybody": (
        'never = [{action = "A"}, {action = "B"}, {action = "C"}]',
        "no action is left for anybody",
    ),
}


@pytest.mark.parametrize("rules", [pytest.param(r, id=name) for name, r in MISTAKES.items()])
def test_mistakes_are_named_with_their_line_before_anything_is_asked(study_of, rules):
    text, words = rules
    with pytest.raises(OptionError) as caught:
        study_of(text)
    assert words in str(caught.value)
    assert "line 14: policy." in str(caught.value) or "line 15: policy." in str(caught.value)


def test_rules_that_leave_everybody_something_are_a_study(study_of):
    """That two rules touch is no contradiction: 30 itself is in one of them alone."""
    plain = study_of("")
    study = study_of(
        'only = {north = ["A", "B"]}\n'
        '[[policy.never]]\naction = "A"\nwhen = "kidney < 30"\n'
        '[[policy.never]]\naction = "B"\nwhen = "kidney >= 30"\n'
    )
    assert study != plain
    assert "permissions" not in plain.model_dump()
    assert type(study).model_validate_json(study.model_dump_json()) == study
    assert study.permissions.limited(study.actions) == ("A", "B", "C")
    marked = STUDY.replace("[policy]", '[rows]\nmissing = "indicator"\n[policy]')
    with pytest.raises(OptionError, match="no action is left at client 'north'"):
        # Where kidney is missing, nobody knows that either does not hold.
        study_of(
            'only = {north = ["A", "B"]}\nnever = [{action = "A", when = "kidney < 30"}, '
            '{action = "B", when = "kidney >= 30"}]',
            marked,
        )


def test_a_tree_with_noise_has_no_permissions():
    with pytest.raises(OptionError, match="tree's tables would need noise"):
        fedopl.Study(
            actions=("a", "b"),
            features=("x",),
            policy=fedopl.Tree(never=[{"action": "a", "when": "x < 1"}]),
            privacy=fedopl.PrivacyPlan(epsilon=1.0, outcome=(0, 1), ranges={"x": (0, 1)}),
            declared=fedopl.Declared(overlap=0.1),
        )


# --- tables ---------------------------------------------------------------------------------------

CLIENT = '[data]\nfile = "rows.csv"\n[limits]\nminimum_rows = 20\n'


@pytest.fixture
def kidneys(tmp_path):
    """Two clients whose past has what is forbidden now."""
    import numpy as np

    rng = np.random.default_rng(0)
    for place, name in enumerate(("north", "south")):
        folder = tmp_path / "clients" / name
        folder.mkdir(parents=True)
        (folder / "client.toml").write_text(CLIENT)
        lines = ["kidney,age,ward,drug,y"]
        for _ in range(300):
            kidney, age, drug = rng.integers(0, 100), rng.integers(20, 90), rng.choice(list("ABC"))
            ward = rng.choice(["icu", "er", "day"])
            y = rng.normal() + 2 * (drug == "A") + kidney / 50 * (drug == "B") + place
            lines.append(f"{kidney},{age},{ward},{drug},{y:.3f}")
        (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "study.toml").write_text(
        STUDY + 'only = {north = ["B", "C"]}\n'
        '[[policy.never]]\naction = "A"\nwhen = "kidney < 30 and age > 40"\n'
    )
    return tmp_path


def test_a_run_obeys_from_its_check_to_decided_tables(kidneys):
    found = check(kidneys / "study.toml", kidneys / "clients")
    assert found.is_ready
    n_taken = found.clients["north"].data.rows_per_action[0]
    north, south = (" ".join(found.clients[name].cautions) for name in ("north", "south"))
    assert f"'A' was given in {n_taken} of {n_taken} rows" in north
    assert "where the study forbids it" in south
    assert "'B' was given" not in north + south
    run = fedopl.run(kidneys / "study.toml", kidneys / "clients", out=kidneys / "run")
    verb = CliRunner().invoke
    table, out = kidneys / "clients" / "south" / "rows.csv", kidneys / "decided.csv"
    about = ["decide", str(kidneys / "run"), str(table), "--out", str(out)]
    refused = verb(app, about)
    assert refused.exit_code
    for client in ("other", str(kidneys / "clients" / "south")):
        assert verb(app, [*about, "--client", client]).exit_code == 0
        rows = [line.split(",") for line in out.read_text().splitlines()[1:]]
        given = [row[-1] for row in rows if int(row[0]) < 30 and int(row[1]) > 40]
        assert "A" not in given
        assert "A" in [row[-1] for row in rows]
    assert verb(app, [*about, "--client", "north"]).exit_code == 0
    assert "A" not in [line.split(",")[-1] for line in out.read_text().splitlines()[1:]]
    page = fedopl.write_report(run, kidneys / "report.html").read_text()
    for words in (
        "Where kidney &lt; 30 and age &gt; 40, nobody gets",
        "At north only",
        "No policy gives",
        "ll who may get &#39;A&#39; get it",
    ):
        assert words in page
    explained = verb(app, ["explain", str(kidneys / "run")])
    assert "Where kidney < 30 and age > 40, nobody gets 'A'." in explained.stdout


def test_a_client_that_does_not_take_part_has_no_actions_of_its_own(kidneys):
    text = (kidneys / "study.toml").read_text().replace("north =", "nrth =")
    (kidneys / "study.toml").write_text(text)
    with pytest.raises(OptionError) as caught:
        check(kidneys / "study.toml", kidneys / "clients")
    assert "line 14: policy.only.nrth: there is no client 'nrth'" in str(caught.value)
