"""Policies exported to other programs: SQL, Python, spreadsheets, ONNX; one file for each."""
