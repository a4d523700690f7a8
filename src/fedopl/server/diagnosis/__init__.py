"""How clients differ and what joining is worth, from further questions in batches."""
