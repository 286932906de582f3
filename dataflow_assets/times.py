"""Times as text: RFC 3339 with nanoseconds, Go layouts, zones."""
