"""What runs inside a Spark task: the one pass over a micro-batch."""
