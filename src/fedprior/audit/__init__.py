"""Attacks on channels and on whole runs, and checks that what is drawn is what is claimed."""
