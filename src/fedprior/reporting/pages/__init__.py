"""Pages of run folders, sweeps and ledgers: each says what its output looks like as a page."""
