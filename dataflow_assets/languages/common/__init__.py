"""Code that readers of several languages share: documents with places, keys, tokens."""
