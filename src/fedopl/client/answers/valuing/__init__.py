"""Values of policies on a client's rows, by any outcome: on all rows, by fold, leaf and price."""
