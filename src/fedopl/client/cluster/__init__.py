"""Workers of the client's own, on several machines perhaps, that go through its rows on disk."""
