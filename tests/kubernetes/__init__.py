"""Custom resources: definitions, flows made of them, and what is told about them."""
