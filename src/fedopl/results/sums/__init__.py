"""What clients reported once, from which policies for any mixture follow without asking again."""
