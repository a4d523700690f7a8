"""Whether joining pays, in words and tables that the page and the command line share."""
