"""The paper's experiments: cells of regrets, figures of curves, verdicts on claims."""
