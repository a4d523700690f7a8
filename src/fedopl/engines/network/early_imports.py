"""Imports libraries before anybody waits for what is computed with them.

scikit-learn and SciPy take seconds to import, most of all where all parties share a machine.
Clients do so before they connect, and a server while it waits for them.
"""

from importlib import import_module
from importlib.util import find_spec

from fedopl.study.study import Study

MODULES_FOR_SOLVING = ("scipy.optimize", "scipy.special")
MODULES_FOR_PROPENSITIES = (
    "scipy.stats",  # half of what scikit-learn takes
    *("sklearn.ensemble", "sklearn.linear_model", "sklearn.pipeline"),
)


def modules_for_answers(study: Study) -> tuple[str, ...]:
    """The modules that a client needs in order to read and score its rows."""
    # pyarrow imports pandas, where it is installed, as soon as it converts a value.
    reading = ("pandas",) if find_spec("pandas") else ()
    estimates = study.nuisances.propensity not in ("known", "marginal")
    scoring = MODULES_FOR_PROPENSITIES if estimates else ()
    return (*reading, *MODULES_FOR_SOLVING, *scoring)


def import_for_answers(study: Study) -> None:
    """What a client needs in order to read and score its rows."""
    for name in modules_for_answers(study):
        import_module(name)


def import_for_solving() -> None:
    """What a server needs to solve for models and for policies, and to estimate values."""
    for name in MODULES_FOR_SOLVING:
        import_module(name)
