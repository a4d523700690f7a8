"""The client's own workers, perhaps on several machines, which sum its rows on disk."""
