"""The report: a run record becomes one page that a committee can read."""
