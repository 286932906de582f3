"""Many small flows on one machine: how new their rows are, and what all of it costs."""
