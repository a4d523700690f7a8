"""Answers about trees on a public grid."""
