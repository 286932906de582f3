"""A table of InnoDB as it is described and made, and the checkpoints beside it."""
