"""Means that come in a few kinds: theta_i is one of k centers (Gaussian around them or not)."""
