"""One file per manifest language: text to flows."""
