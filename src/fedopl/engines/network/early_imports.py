"""Imports libraries before anybody waits for what is computed with them.

scikit-learn and SciPy take seconds to import, most of all where all parties share a machine.
Clients do so before they connect, and a server while it waits for them.
"""

from importlib import import_module

from fedopl.study.study import Study


def import_for_answers(study: Study) -> None:
    """What a client needs in order to score its rows."""
    if study.nuisances.propensity not in ("known", "marginal"):
        for name in ("sklearn.ensemble", "sklearn.linear_model", "sklearn.pipeline"):
            import_module(name)
    import_for_solving()


def import_for_solving() -> None:
    """What a server needs to solve for models and for policies, and to estimate values."""
    for name in ("scipy.optimize", "scipy.special"):
        import_module(name)
