"""Tables as the coordinator describes them, what their catalog can do, and the checkpoint's own."""
