"""Whether joining pays: words and tables shared by the page and the command line."""
