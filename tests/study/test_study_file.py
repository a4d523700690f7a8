import contextlib
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.base.errors import FedoplError, OptionError
from fedopl.base.toml_file import TomlFile
from fedopl.cli.before_run import template
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.study.policy_plans import Tree
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.study_file import StudyFile, read_study
from tiny_study import STUDY


@pytest.fixture
def read(tmp_path):
    """A function that reads a text as a study file."""

    def _read(text):
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return read_study(tmp_path / "study.toml")[0]

    return _read


def mistakes(read, text):
    with pytest.raises(OptionError) as caught:
        read(text)
    return str(caught.value)


def edited(old, new):
    assert old in STUDY
    return STUDY.replace(old, new, 1)


# --- what a file means ----------------------------------------------------------------------------


def test_a_short_file_is_the_study_with_every_default(read):
    study = read(STUDY)
    expected = fedopl.Study(
        name="Tiny",
        actions=("usual", "new"),
        features=("age", "severity", "living=alone"),
        table=fedopl.Schema(
            action="arm",
            actions=("usual", "new"),
            reward="gain",
            direction="higher",
            numeric=("age", "severity"),
            categorical={"living": ("with others", "alone")},
        ),
        nuisances=fedopl.NuisancePlan(propensity="marginal"),
    )
    assert study == expected
    assert study.digest == expected.digest


def test_comments_blank_lines_and_the_order_of_sections_do_not_change_the_study(read):
    sections = STUDY.split("\n\n")
    turned = "\n\n".join(["# hello", sections[0], *reversed(sections[1:])]) + "\n"
    assert read(turned).digest == read(STUDY).digest


def test_windows_line_ends_and_a_byte_order_mark_do_not_change_the_study(tmp_path, read):
    expected = read(STUDY).digest
    for content in (STUDY.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + STUDY.encode()):
        (tmp_path / "study.toml").write_bytes(content)
        assert read_study(tmp_path / "study.toml")[0].digest == expected


def test_labels_may_be_written_as_numbers(read):
    study = read(edited('["usual", "new"]', '[0, "25", 50.0]'))
    assert study.actions == ("0", "25", "50")


@pytest.mark.parametrize(
    "change",
    [
        ('name = "Tiny"', 'name = "Tiny"\nseed = 1'),
        ('"higher"', '"lower"'),
        ('["usual", "new"]', '["new", "usual"]'),
        ('"marginal"', '"auto"'),
        ("[nuisances]", "[requires]\nvalues = true\n\n[nuisances]"),
        ("[nuisances]", "[evaluation]\nshare = 0.3\n\n[nuisances]"),
    ],
)
def test_whatever_is_agreed_on_is_in_the_hash(read, change):
    assert read(edited(*change)).digest != read(STUDY).digest


def test_candidates_are_read_relative_to_the_file(tmp_path, read):
    names = ("usual", "new"), ("age", "severity", "living=alone")
    policy = constant_policy("new", *names)
    policy.save(tmp_path / "protocol.json")
    added = '\n[policy]\nkind = "finite"\ncandidates = { protocol = "protocol.json" }\n'
    assert read(STUDY + added).candidates == ("protocol",)
    _, candidates = read_study(tmp_path / "study.toml")
    assert isinstance(candidates["protocol"], LinearPolicy)


# --- trees ----------------------------------------------------------------------------------------

TREE = STUDY + '\n[policy]\nkind = "tree"\n'


def test_a_tree_is_agreed_on_in_the_file(read):
    plan = """
[tree]
depth = 3
cuts = { age = [40, 65.5] }
columns = ["age", "living"]
minimum_leaf = 20
allowed = [{ column = "living", level = "alone", actions = ["usual"] }]
"""
    study = read(TREE + plan)
    assert (study.policy.kind, study.policy.depth, study.policy.minimum_leaf) == ("tree", 3, 20)
    assert study.policy.cuts == {"age": (40.0, 65.5)}
    assert study.policy.allowed[0].level == "alone"
    assert study.cut_columns == ()  # age is agreed on, severity may not be asked about


@pytest.mark.parametrize(
    ("plan", "line", "message"),
    [
        ("depth = 7", "depth", "tree.depth: Input should be less than or equal to 6"),
        ("cuts = { age = [65, 40] }", "cuts", "cuts: those of 'age' are not rising numbers"),
        ("cuts = { height = [1] }", "[tree]", "tree: there is no column 'height'"),
        ("cuts = { living = [1] }", "cuts", "tree.cuts: 'living' has levels"),
        ('columns = ["height"]', "[tree]", "tree: there is no column 'height'"),
        (
            'allowed = [{ column = "living", level = "outside", actions = ["usual"] }]',
            "allowed",
            "tree.allowed: 'living' has no such level; it has 'with others', 'alone'",
        ),
        (
            'allowed = [{ column = "living", at_most = 1, actions = ["usual"] }]',
            "allowed",
            "tree.allowed: 'living' has no such level",
        ),
        (
            'allowed = [{ column = "age", level = "old", actions = ["usual"] }]',
            "allowed",
            "tree.allowed: 'age' is a number; say at_most or above",
        ),
        (
            'allowed = [{ column = "age", above = 80, actions = ["unusual"] }]',
            "allowed",
            "tree.allowed: 'unusual' are not actions of the study",
        ),
        (
            'allowed = [{ column = "age", actions = ["usual"] }]',
            "allowed",
            "say who by one of level, at_most and above",
        ),
        ('thresholds = "observed"\ndepth = 3', "[tree]", "observed ones are searched to depth 2"),
    ],
)
def test_a_tree_that_cannot_be_is_refused_with_its_line(tmp_path, read, plan, line, message):
    text = f"{TREE}\n[tree]\n{plan}\n"
    number = 1 + next(k for k, told in enumerate(text.splitlines()) if told.startswith(line))
    with pytest.raises(OptionError) as refused:
        read(text)
    assert message in str(refused.value)
    assert f"line {number}" in str(refused.value)


def test_only_a_tree_has_a_plan_for_one(read):
    with pytest.raises(OptionError, match="the policy is linear, not a tree"):
        read(STUDY + "\n[tree]\ndepth = 3\n")
    with pytest.raises(OptionError, match=r"policy\.oracle: a tree is searched for"):
        read(TREE.replace('kind = "tree"', 'kind = "tree"\noracle = "wap"'))


# --- the example that `init` writes ---------------------------------------------------------------

COMMENTED = re.compile(r"# (\w+ = .*)")
# Settings that are off unless they are said, so that the example cannot show their default.
OFF = {
    *("largest_share", "costs"),
    *("robust", "diagnosis", "admitted"),
    *(
        "propensity",
        "weight",
        "group",
        "candidates",
        "clients_per_round",
        "clip",
        "unseen",
        "never",
        "only",
    ),
    *("cuts", "columns", "minimum_leaf", "split_cost", "allowed", "reward", "overlap"),
}


# What a study with differential privacy cannot have; the example's is its last section.
PRIVACY = next(line for line in template("study.toml").splitlines() if line.startswith("[privacy]"))
NOT_WITH_NOISE = {"weight", "candidates", "robust", "costs"}
TREES = set(Tree.model_fields)


def commented_settings():
    """Every setting the example shows in a comment, with its section."""
    section = ""
    for number, line in enumerate(template("study.toml").splitlines()):
        section = found[1] if (found := re.match(r"\[(\w+)\]", line)) else section
        if found := COMMENTED.match(line):
            yield number, section, found[1]


def test_the_example_is_a_study(read):
    assert read(template("study.toml")).name == "My study"


def test_every_default_the_example_shows_is_the_default(read):
    lines = template("study.toml").splitlines()
    for number, section, setting in commented_settings():
        if section != "requires" and setting.split(" ")[0] not in OFF:
            lines[number] = setting
    assert read("\n".join(lines)) == read(template("study.toml"))


@pytest.mark.parametrize(("number", "section", "setting"), list(commented_settings()))
def test_every_setting_the_example_shows_can_be_said(tmp_path, read, number, section, setting):
    lines = template("study.toml").splitlines()
    if number < lines.index(PRIVACY) and setting.split(" ")[0] in NOT_WITH_NOISE | TREES:
        lines = lines[: lines.index(PRIVACY)]
    lines[number] = setting
    if section == "tree":
        lines[lines.index("[policy]")] += '\nkind = "tree"'
    if setting.startswith("candidates"):
        lines[number] += '\nkind = "finite"'
        features = ("age", "severity", "living=alone")
        arm = constant_policy("new drug", ("usual care", "new drug"), features)
        arm.save(tmp_path / "protocol.json")
    assert read("\n".join(lines)).n_actions == 2


def test_the_example_shows_every_key_there_is():
    shown = re.findall(r"(?m)^(?:# +)*(\w+) =", template("study.toml"))
    sections = re.findall(r"(?m)^(?:# )?\[(\w+)\]", template("study.toml"))
    for name, field in StudyFile.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            assert name in sections
            assert set(field.annotation.model_fields) <= set(shown), name
        else:
            assert name in shown or name in sections
    assert set(PrivacyPlan.model_fields) - {"declared_ranges"} <= set(shown)  # a run fills it in
    for words in ('kind = "uniform"', "shares = {", "toward =", "alpha ="):
        assert words in template("study.toml")


# --- mistakes -------------------------------------------------------------------------------------

MISTAKES = {
    "syntax": (edited('"higher"', '"higher'), "line 5, column 20: "),
    "a section twice": (STUDY + "[features]\n", "line 18, column 10: "),
    "unknown at the top": (
        edited("name =", "seeed = 1\nname ="),
        "line 1: unknown key 'seeed'; did you mean 'seed'? ",
    ),
    "unknown section": (
        STUDY + "[polcy]\n",
        "line 18: unknown key 'polcy'; did you mean 'policy'? ",
    ),
    "unknown in a section": (
        edited("direction", 'directon = ""\ndirection'),
        "line 5: unknown key 'outcome.directon'; did you mean 'direction'? ",
    ),
    "unknown in a plan": (
        STUDY + "[plan]\nround = 3\n",
        "line 19: unknown key 'plan.round'; did you mean 'rounds'? ",
    ),
    "unknown in a mixture": (
        STUDY + '[mixture]\nkind = "uniform"\nalpha = 1\n',
        "line 20: unknown key 'mixture.alpha'; expected one of kind",
    ),
    "unknown in requires": (
        STUDY + "[requires]\nvalue = true\n",
        "line 19: unknown key 'requires.value'; did you mean 'values'? ",
    ),
    "unknown and dotted": (
        edited("name", "plan.round = 3\nname"),
        "line 1: unknown key 'plan.round'; did you mean 'rounds'? ",
    ),
    "not one of the literals": (
        edited('"higher"', '"highest"'),
        "line 5: outcome.direction: came 'highest'; did you mean 'higher'? ",
    ),
    "another case": (
        edited('"higher"', '"Higher"'),
        "line 5: outcome.direction: came 'Higher'; did you mean 'higher'? ",
    ),
    "no such oracle": (
        STUDY + '[policy]\noracle = "csoa-exact"\n',
        "line 19: policy.oracle: came 'csoa-exact'; did you mean 'csoaa-exact'? ",
    ),
    "no such mixture": (
        STUDY + '[mixture]\nkind = "unifrm"\n',
        "line 19: mixture.kind: came 'unifrm'; did you mean 'uniform'? ",
    ),
    "a mixture of no kind": (
        STUDY + "[mixture]\nalpha = 0.2\n",
        "line 18: 'mixture.kind' is missing",
    ),
    "a feature of no kind": (
        edited('age = "number"', 'age = "numbr"'),
        'line 12: features.age: expected "number", a list of all its levels, ',
    ),
    "a word for a number": (STUDY + '[plan]\nrounds = "many"\n', "line 19: plan.rounds: "),
    "a number for a word": (edited('"Tiny"', "5"), "line 1: name: "),
    "text for a number": (edited('"Tiny"', '"Tiny"\nseed = "3"'), "line 2: seed: "),
    "a flag for a number": (edited('"Tiny"', '"Tiny"\nseed = true'), "line 2: seed: "),
    "a number for a section": (edited('"Tiny"', '"Tiny"\npolicy = 3'), "line 2: policy: "),
    "too large": (STUDY + "[evaluation]\nshare = 1.5\n", "line 19: evaluation.share: "),
    "too small": (STUDY + "folds = 1\n", "line 18: nuisances.folds: "),
    "not a number": (STUDY + "[evaluation]\nshare = nan\n", "line 19: evaluation.share: "),
    "infinite": (STUDY + "[plan]\nproximal = inf\n", "line 19: plan.proximal: "),
    "missing key": (
        edited('direction = "higher"\n', ""),
        "line 3: 'outcome.direction' is missing; add it",
    ),
    "missing section": (
        edited('[outcome]\ncolumn = "gain"\ndirection = "higher"\n', ""),
        "'outcome' is missing; add it",
    ),
    "no feature": (
        edited('age = "number"\nseverity = "number"\nliving = ["with others", "alone"]\n', ""),
        "line 11: features: ",
    ),
    "blocks that do not divide": (
        STUDY + '[policy]\nfeatures = "blocks"\n',
        "line 19: policy.features: 3 features cannot be cut into 2 equal blocks",
    ),
    "blocks with all pairs": (
        edited('living = ["with others", "alone"]\n', "")
        + '[policy]\nfeatures = "blocks"\noracle = "wap"\n',
        "line 19: policy.oracle: wap works on shared features",
    ),
    "caution below nothing": (
        STUDY + "[policy]\ncaution = -0.5\n",
        "line 19: policy.caution: Input should be greater than or equal to 0",
    ),
    "caution of a network": (
        STUDY + '[policy]\nkind = "neural"\ncaution = 0.5\n',
        "line 20: policy.caution: is for linear policies, trees and candidates; networks have no",
    ),
    "caution of another oracle": (
        STUDY + '[policy]\noracle = "csoaa-sgd"\ncaution = 0.5\n',
        "line 20: policy.caution: only csoaa-exact on shared features gives standard errors",
    ),
    "precision of another oracle": (
        STUDY + '[policy]\nprecision = "clients"\noracle = "wap"\n',
        "line 19: policy.precision: only csoaa-exact and direct",
    ),
    "nothing to borrow": (
        STUDY + 'kind = "local"\nunseen = "borrow"\n',
        "nothing to borrow from with local nuisances",
    ),
    "shares of more than one": (
        STUDY + '[mixture]\nkind = "given"\nshares = { a = 0.9, b = 0.2 }\n',
        "mixture: expected shares that add up to 1, they add up to 1.1",
    ),
    "a negative share": (
        STUDY + '[mixture]\nkind = "given"\nshares = { a = 1.5, b = -0.5 }\n',
        "expected shares from 0 to 1; not so for a, b",
    ),
    "one level": (
        edited('["with others", "alone"]', '["alone"]'),
        "line 14: features.living: name at least two levels",
    ),
    "no level": (edited('["with others", "alone"]', "[]"), "line 14: features.living: "),
    "a level twice": (
        edited('["with others", "alone"]', '["alone", "alone"]'),
        "line 14: features.living: named more than once: 'alone'",
    ),
    "one action": (
        edited('["usual", "new"]', '["usual"]'),
        "line 9: action.levels: a decision needs at least two",
    ),
    "an action twice": (
        edited('["usual", "new"]', '["usual", "usual"]'),
        "line 9: action.levels: named more than once: 'usual'",
    ),
    "an action that is a list": (
        edited('["usual", "new"]', '["usual", ["new"]]'),
        "line 9: action.levels",
    ),
    "a feature that is the action": (
        edited('age = "number"', 'arm = "number"'),
        "features: arm is the action or an outcome",
    ),
    "an outcome that is the action": (
        edited('column = "arm"', 'column = "gain"'),
        "line 8: action.column: ",
    ),
    "propensities of some actions": (
        edited("[features]", 'propensity = { usual = "p" }\n\n[features]'),
        "line 11: action.propensity: ",
    ),
    "known propensities that nobody has": (
        edited('"marginal"', '"known"'),
        "line 17: nuisances.propensity: ",
    ),
    "a path for a tree": (
        STUDY + '[policy]\nkind = "tree"\n[mixture]\nkind = "path"\ntoward = "north"\n',
        "line 20: mixture: a path works with linear and finite policies",
    ),
    "sums that no message holds": (
        edited('age = "number"', f"age = {[str(n) for n in range(5200)]}"),
        "line 16: nuisances: federated outcome models take squares of 5,201 features",
    ),
    "candidates without a choice": (
        STUDY + '[policy]\ncandidates = { a = "a.json" }\n',
        'line 19: candidates: only kind = "finite" chooses among candidates',
    ),
}


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_line_what_came_and_what_was_expected(read, text, said):
    message = mistakes(read, text)
    assert said in message
    assert "study.toml" in message
    assert "Input tag" not in message
    assert "discriminator" not in message


def test_every_mistake_is_told_at_once_in_the_order_of_the_lines(read):
    text = edited('"Tiny"', "5").replace('"higher"', '"up"').replace('"marginal"', '"sure"')
    lines = mistakes(read, text).splitlines()
    assert [int(re.search(r"line (\d+)", line)[1]) for line in lines] == [1, 5, 17]


def test_no_file_a_folder_and_other_text_are_said_so(tmp_path):
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        read_study(tmp_path / "no.toml")
    with pytest.raises(OptionError, match="expected a file, came a folder"):
        read_study(tmp_path)
    (tmp_path / "latin.toml").write_bytes('name = "für sich"'.encode("latin-1"))
    with pytest.raises(OptionError, match="expected UTF-8 text"):
        read_study(tmp_path / "latin.toml")


def test_candidates_that_are_not_there_or_not_of_this_study_are_named(tmp_path, read):
    text = STUDY + '[policy]\nkind = "finite"\ncandidates = { protocol = "protocol.json" }\n'
    with pytest.raises(FedoplError, match=r"protocol\.json: cannot be read"):
        read(text)
    constant_policy("a", ("a", "b"), ("x",)).save(tmp_path / "protocol.json")
    message = mistakes(read, text)
    assert "line 20: candidate 'protocol': its actions or features are not the study's" in message


# --- whatever people type -------------------------------------------------------------------------

TEMPLATES = (STUDY, template("study.toml"))


@st.composite
def mutated(draw):
    """One of our files with a few characters taken out, put in, or moved."""
    text = draw(st.sampled_from(TEMPLATES))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        until = at + draw(st.integers(0, 12))
        new = draw(
            st.sampled_from(["", "[", "]", "=", '"', "{}", "\n", "#", "true", "nan", "1e999", "é"])
            | st.text(max_size=3)
        )
        text = text[:at] + new + text[until:]
    return text


@given(mutated())
def test_whatever_is_typed_gives_a_study_or_one_clear_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "typed.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        study, _ = read_study(path)
    except FedoplError as error:
        said = str(error)
    else:
        said = path.name
        assert fedopl.Study.model_validate_json(study.model_dump_json()).digest == study.digest
    assert path.name in said or ".json" in said


KEYS = st.sampled_from([*StudyFile.model_fields, "kind", "column", "levels", "shares", "x"])
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(StudyFile.model_fields)), VALUES)
def test_whatever_stands_in_a_section_gives_a_study_or_one_clear_error(
    tmp_path_factory, name, value
):
    content = {**tomllib.loads(STUDY), name: value}
    file = TomlFile(tmp_path_factory.getbasetemp() / "any.toml", STUDY, content)
    with contextlib.suppress(FedoplError):
        assert file.parsed(StudyFile).study.n_actions >= 2


def test_nothing_that_is_nested_too_deeply_ends_in_a_traceback(read):
    assert "study.toml" in mistakes(read, STUDY + "x = " + "[" * 5000 + "]" * 5000 + "\n")
