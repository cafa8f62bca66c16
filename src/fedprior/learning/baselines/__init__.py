"""Methods to compare with, one file a method."""
