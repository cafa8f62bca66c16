"""A better number for every small group: NumPy and SciPy only, JAX never loaded."""
