"""One record, and the language of manifests about it: paths, conditions, times, placeholders."""
