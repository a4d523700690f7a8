"""Differential privacy as arithmetic: accounting, exact noise and its source."""
