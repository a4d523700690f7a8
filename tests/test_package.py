import subprocess
import sys

import fedopl

SURFACE = """
    Basis Budget ClientFactory Contexts Costs DaskEngine DataError Declared Estimate EvaluationPlan
    FederationError
    FedoplError FedoplWarning
    Finite Guardrail JoiningPlan Limits Linear LinearPolicy LoggedData ModelError Neural
    NeuralPolicy NuisancePlan Nuisances
    OptionError Overlap PairwisePolicy PolicyError PolicyLearner PrivacyError PrivacyPlan Ranges Run
    Running Schema SchemaError Scores SparkEngine
    StorageError Study StudyError TrainingPlan Tree TreePolicy
    aipw_scores check cross_fit dm_scores estimate_value evaluate ipw_scores learn load_policy
    load_run mixture overlap read_contexts read_logged read_study run search_tree
    self_normalised_aipw_scores
    self_normalised_ipw_scores write_report
""".split()

# What takes a while to load, whoever needs it: declared, in an extra, or once thought of.
HEAVY = set(
    """
    cryptography dp_accounting duckdb flwr jinja2 lightgbm matplotlib narwhals numba pandas polars
    psycopg pyarrow pydantic pydantic_core rich scipy sklearn sqlalchemy statsmodels threadpoolctl
    torch typer vowpalwabbit
    """.split()
)
DRAWS_HELP = {"rich", "typer"}


def test_the_public_surface_is_what_it_was():
    assert sorted(fedopl.__all__) == SURFACE


def test_every_public_name_is_there_and_has_a_docstring():
    for name in fedopl.__all__:
        assert getattr(fedopl, name).__doc__, name
    assert set(fedopl.__all__) <= set(dir(fedopl))


def test_the_lazy_table_and_the_surface_agree():
    assert sorted([*fedopl._HOME_OF, "mixture"]) == sorted(fedopl.__all__)


def _packages_after(code):
    """The packages that a new process has loaded then, but for Python's own."""
    program = f"""
import sys
before = set(sys.modules)
{code}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*loaded - set(sys.stdlib_module_names))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_fedopl_loads_no_other_package():
    assert _packages_after("import fedopl") == {"fedopl"}


def test_help_loads_only_what_draws_it():
    code = """
from fedopl.cli.app import main
sys.argv = ["fedopl", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    loaded = _packages_after(code)
    assert loaded & HEAVY == DRAWS_HELP
    assert "numpy" not in loaded


def test_scoring_arrays_with_linear_models_loads_nothing_heavy():
    code = """
import fedopl, numpy as np
data = fedopl.LoggedData(np.eye(8), [0, 1] * 4, np.arange(8.0))
fedopl.aipw_scores(data, fedopl.cross_fit(data, propensity="marginal"))
"""
    assert not _packages_after(code) & HEAVY


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(fedopl, "no_such_thing")
