"""What a client and a server do in a round, each without the other's data."""
