"""A site without outcomes: the value of a policy there, and which clients are like it."""
