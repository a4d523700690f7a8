"""Messages about a site without outcomes."""
