"""The Algorithm and its laws, checks, trees, keyed randomness."""
