"""A live Spark session, wherever Spark runs."""
