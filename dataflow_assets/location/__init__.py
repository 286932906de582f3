"""What Dagster is given: definitions made of folders, with their jobs, sensors and resources."""
