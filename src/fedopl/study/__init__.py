"""What all parties agree on before anything runs: the plans, the mixture, and the study."""
