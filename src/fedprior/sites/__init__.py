"""What a site and a coordinator do in a run, without a transport between them."""
