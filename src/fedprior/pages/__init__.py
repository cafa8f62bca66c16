"""Pages: one HTML file for each answer, which opens from disk and asks the network for nothing."""
