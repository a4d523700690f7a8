"""Figures as inline SVG, in colours that the page sets."""
