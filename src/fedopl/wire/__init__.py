"""What may cross between client and server: a closed vocabulary, and its bytes."""
