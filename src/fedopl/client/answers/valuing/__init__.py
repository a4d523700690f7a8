"""What policies are worth on a client's rows, by any outcome: on all, by fold, leaf and price."""
