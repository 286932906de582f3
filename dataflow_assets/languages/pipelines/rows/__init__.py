"""SingleStore's pipelines: types, expressions on JSON, declared tables, and the step of a flow."""
