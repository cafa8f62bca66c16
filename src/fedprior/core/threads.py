"""One thread for linear algebra on many small tables."""

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager:
    """Holds BLAS to one thread: on small tables several only wait for one another.

    On a busy machine that made a fit twenty times slower.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")
