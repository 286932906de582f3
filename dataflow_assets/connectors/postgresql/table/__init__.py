"""The target table: its description, its creation, and the storage of its checkpoint."""
