"""Modules that a command's imports drag in without a use for them, loaded only if used after all.

SciPy copies NumPy's namespace name by name, and so imports f2py and the testing tools: a
fifth of the CPU time before an estimate. A command owns its process, so it may say how they load;
the library does not.
"""

import importlib.util
import sys

_UNUSED = ("numpy.f2py", "numpy.testing")


def load_lazily() -> None:
    """Make each of them a module that runs when an attribute is first asked for."""
    for name in _UNUSED:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            continue
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        parent, _, own = name.rpartition(".")
        setattr(sys.modules[parent], own, module)
