"""data_i ~ p(. | theta_i): the likelihoods."""
