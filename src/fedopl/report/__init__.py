"""The report: turns a run record into one page that a committee can read."""
