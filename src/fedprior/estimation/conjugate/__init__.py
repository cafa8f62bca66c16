"""Rates: theta_i ~ Beta, a mixture of atoms, a point; k_i ~ Binomial(n_i, theta_i)."""
