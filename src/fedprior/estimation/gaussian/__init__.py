"""Means: theta_i ~ N(mu, A) or another shape; x_i ~ N(theta_i, v_i)."""
