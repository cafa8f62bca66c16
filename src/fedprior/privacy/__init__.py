"""Cohorts, accounting, plans and ledgers: what a run costs and what it has cost."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
