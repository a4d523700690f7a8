"""The only package that handles rows: it reads them, scores them and answers queries about them."""
