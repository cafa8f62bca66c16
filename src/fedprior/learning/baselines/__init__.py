"""Methods to compare with, one file per method."""
