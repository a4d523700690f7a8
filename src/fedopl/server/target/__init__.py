"""A site without outcomes: what a policy is worth there, and who is like it."""
