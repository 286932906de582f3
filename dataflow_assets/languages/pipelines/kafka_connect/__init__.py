"""The source of SingleStore's pipelines that run a class of Kafka Connect."""
