"""The paper's experiments: regrets on simulated draws, figures, and verdicts on claims."""
