"""Live web pages on this machine: one follows a run, one follows the questions to a client."""
