"""One job per flow, replays, and maintenance."""
