"""The transactional sink: what is stored of a branch, what decides, and the session for both."""
