"""fedprior: learn the population that many small clients come from, and use it as their prior.

The names in `__init__.pyi` are the public interface, here and in each namespace.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
