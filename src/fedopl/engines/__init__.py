"""Engines run studies: they carry bytes between the server and the clients."""
