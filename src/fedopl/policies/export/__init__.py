"""Policies written for other programs: SQL, Python, spreadsheets, ONNX; one file for each."""
