"""Estimates from reports that are private before they leave their group."""
