"""Messages of a study with masked answers, in which the server reads only their total."""
