"""What a family of counts knows of itself: all else in `conjugate` is written once for both."""
