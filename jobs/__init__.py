"""One job per flow, and maintenance."""
