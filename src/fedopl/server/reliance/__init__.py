"""What a result rests on: one client less, and answers that do not fit together."""
