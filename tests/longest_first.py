"""Files of tests that take longest start first, so that none is left for the end.

Federations of many processes stand apart, as two at a time would wait for each other.
"""

from pathlib import Path

HERE = Path(__file__).parent
LONGEST = (
    "engines/test_local_federation.py",
    "test_benchmarks.py",
    "test_site.py",
    "laws/test_flower_equals_in_process.py",
    "laws/test_killed_runs_resume.py",
    "test_docs.py",
    "engines/test_learn.py",
    "engines/test_secure_federation.py",
    "cli/test_verbs.py",
    "laws/test_models_too_simple.py",
    "engines/test_private_runs.py",
    "laws/test_same_sums_by_workers.py",
    "laws/test_what_is_recommended.py",
    "report/test_report_in_browser.py",
    "laws/test_https_equals_in_process.py",
    "cli/test_demo.py",
    "laws/test_many_actions.py",
    "policies/trees/test_learning_trees.py",
    "server/diagnosis/test_shifts.py",
    "engines/test_rows_on_disk.py",
)


def pytest_collection_modifyitems(items):
    places = {HERE / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
