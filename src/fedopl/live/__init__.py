"""Pages in a browser on this machine that follow a run, or a client's door, as it goes."""
