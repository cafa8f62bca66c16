"""Groups within groups and crossed groups: random intercepts of several grouping factors."""
