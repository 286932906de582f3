"""The work inside of a Spark task: the one pass over a micro-batch."""
