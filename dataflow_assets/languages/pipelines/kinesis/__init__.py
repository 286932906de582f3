"""The source of SingleStore's Kinesis pipelines."""
