"""What everything else stands on: errors, arrays, labels, files. It imports nothing of ours."""
