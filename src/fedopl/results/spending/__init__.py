"""The gain of a policy within a budget, as numbers and in words."""
