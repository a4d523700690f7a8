"""Totals, models and tables from everybody's answers, weighed by the mixture."""
