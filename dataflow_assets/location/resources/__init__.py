"""What assets are given: Spark, and one IO manager per table system."""
