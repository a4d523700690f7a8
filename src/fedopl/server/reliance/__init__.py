"""How much a result depends on single clients, and which answers contradict each other."""
