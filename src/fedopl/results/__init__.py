"""What a run leaves behind, in memory and as a folder of files."""
