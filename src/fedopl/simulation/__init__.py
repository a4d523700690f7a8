"""Simulated worlds whose truth is known."""

from fedopl.simulation.paper import PaperWorld, paper_world

__all__ = ["PaperWorld", "paper_world"]
