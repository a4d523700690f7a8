"""How clients differ and what joining is worth: asked of clients, batch by batch."""
