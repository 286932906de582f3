"""The language of SingleStore's pipelines: `*.sql` files with CREATE PIPELINE."""
