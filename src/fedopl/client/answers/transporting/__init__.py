"""What a client sends for the sake of a site without outcomes, or as that site."""
