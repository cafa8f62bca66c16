"""Federations of clients, and the readers that make them from tables, folders and datasets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
