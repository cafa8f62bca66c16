"""The same estimates as algorithms: additive messages, rounds, any channel and engine."""
