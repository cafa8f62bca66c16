"""Single-threaded linear algebra for many small tables."""

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager:
    """Limit BLAS to one thread: on small tables, several threads mostly wait for one another.

    On a busy machine, the default made a fit twenty times slower.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")
