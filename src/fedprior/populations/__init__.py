"""theta_i ~ P(gamma): the priors that clients share."""
