"""Statistics that clients reported once; policies for any mixture follow without asking again."""
