"""The arithmetic of secure aggregation: keys, masks that cancel in a sum, numbers modulo 2⁶⁴."""
