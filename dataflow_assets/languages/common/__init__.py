"""What the readers of several languages share: documents with places, keys, wording, tokens."""
