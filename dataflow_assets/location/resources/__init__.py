"""Resources of assets: Spark, and one IO manager per table system."""
