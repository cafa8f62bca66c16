"""A linear, logistic or Poisson regression for every group, with a population learned from all."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
