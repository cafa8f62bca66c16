"""theta_i ~ any distribution on the line: atoms by maximum likelihood."""
