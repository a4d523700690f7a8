"""Secure aggregation as arithmetic: keys, masks that cancel in a sum, numbers modulo 2⁶⁴."""
