"""Messages about trees on a public grid."""
