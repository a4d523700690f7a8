"""What a client tells for the sake of a site without outcomes, or as that site."""
