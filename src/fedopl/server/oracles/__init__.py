"""Oracles: how the server turns clients' answers into a policy. One file for each way."""
