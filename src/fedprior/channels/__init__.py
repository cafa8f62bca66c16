"""What may leave a client."""
