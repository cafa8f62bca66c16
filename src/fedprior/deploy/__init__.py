"""The exchange on real machines, through Flower."""
