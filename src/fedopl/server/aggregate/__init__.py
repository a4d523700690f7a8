"""Totals, models and tables from all clients' answers, weighted by the mixture."""
