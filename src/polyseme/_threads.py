"""How many threads the numerical libraries may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module

# From about here on a training step is large enough for several threads to pay.
MANY_LABELS = 2000


def one_thread_below(n_labels: int) -> AbstractContextManager[None]:
    """Keep to one thread while a network with few labels is trained; see `one_thread`."""
    return one_thread() if n_labels < MANY_LABELS else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the numerical libraries to one thread, and give them back what they had.

    Small matrices gain next to nothing from more threads; where the machine is busy, the threads
    of torch and of BLAS wait for each other and training takes several times as long.
    """
    import torch
    from threadpoolctl import threadpool_limits

    for name in ("scipy.linalg", "sklearn.cluster", "tomotopy"):
        import_module(name)  # a library that is loaded later would not be limited
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)
