"""What becomes one dispatch region."""
