"""The folder as a target: the log of commits that checkpoints are in, and what it is known by."""
