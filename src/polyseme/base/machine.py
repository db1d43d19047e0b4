"""Threads and memory of this machine: how many there are, and how work is shared out among them.

In: calls to make, and jobs that need threads or memory. Out: their results, and limits on what
libraries take. Limits are global to the process: each context manager below counts how many of it
are open, in any thread, and the last one to close restores what there was.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

# From about here on a training step is large enough for several threads to pay.
MANY_LABELS = 500

# How many `one_thread` are open.
_n_one_thread = 0

# How many `one_blas_thread` are open, and the limit that the last of them removes.
_blas_lock = Lock()
_n_one_blas_thread = 0
_blas_limit: Any = None

# How many `onednn_products` are open, and what the setting was before the first of them.
_onednn_lock = Lock()
_n_onednn = 0
_precision_before = "none"


def n_cores() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_threads() -> int:
    """Count the threads of a search: OMP_NUM_THREADS, else all cores; 1 inside `one_thread`."""
    if _n_one_thread:
        return 1
    setting = os.environ.get("OMP_NUM_THREADS", "")
    # OpenMP allows several numbers, for nested levels: "4,2".
    first_number, _, _ = setting.partition(",")
    first_number = first_number.strip()
    most = n_cores()
    if not first_number.isdecimal():
        return most
    n_wanted = min(most, int(first_number))
    return max(1, n_wanted)


def one_thread_below(n_labels: int) -> AbstractContextManager[None]:
    """Limit libraries to one thread while a network with few labels is trained; see `one_thread`.

    With `MANY_LABELS` or more nothing is limited.
    """
    if n_labels < MANY_LABELS:
        return one_thread()
    return nullcontext()


@contextmanager
def one_thread(*, training: bool = True) -> Iterator[None]:
    """Limit searches and the numerical libraries to one thread, and restore what they had.

    Small matrices gain next to nothing from more threads; where the machine is busy, the threads
    of torch and of BLAS wait for each other and training takes several times as long.

    Parameters
    ----------
    training : bool
        Whether the libraries that only training uses are limited, too, and therefore loaded.
    """
    global _n_one_thread
    from threadpoolctl import threadpool_limits

    libraries = ["scipy.linalg"]
    if training:
        libraries += ["sklearn.cluster", "tomotopy", "torch"]
    for name in libraries:
        import_module(name)  # a library that is loaded later would not be limited
    torch = sys.modules.get("torch")
    n_before = torch.get_num_threads() if torch else 0
    with threadpool_limits(limits=1):
        _n_one_thread += 1
        if torch:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            _n_one_thread -= 1
            if torch:
                torch.set_num_threads(n_before)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the linear algebra library to one thread, where threads of our own call it.

    Any number of threads may do so at a time; the last one to leave restores what there was.
    """
    global _n_one_blas_thread, _blas_limit
    with _blas_lock:
        if _n_one_blas_thread == 0:
            _blas_limit = _controller().limit(limits=1, user_api="blas")
        _n_one_blas_thread += 1
    try:
        yield
    finally:
        with _blas_lock:
            _n_one_blas_thread -= 1
            if _n_one_blas_thread == 0 and _blas_limit is not None:
                _blas_limit.restore_original_limits()
                _blas_limit = None


@contextmanager
def onednn_products() -> Iterator[None]:
    """Have oneDNN, not MKL, compute the products of single-precision tensors on the processor.

    On processors that are not Intel's, oneDNN takes half of MKL's time at the sizes of a training
    step. torch asks it only where it may round to bfloat16; oneDNN itself rounds only on
    processors with matrix units (AMX), and there nothing is changed. Threads may be inside at the
    same time: the last to leave restores the setting.
    """
    global _n_onednn, _precision_before
    setting = _onednn_setting()
    # The check changes the setting for a moment: two threads at once would restore each other's.
    with _onednn_lock:
        is_used = setting is not None and _onednn_is_precise()
    if setting is None or not is_used:
        yield
        return
    with _onednn_lock:
        if _n_onednn == 0:
            _precision_before = setting.fp32_precision
            setting.fp32_precision = "bf16"
        _n_onednn += 1
    try:
        yield
    finally:
        with _onednn_lock:
            _n_onednn -= 1
            if _n_onednn == 0:
                setting.fp32_precision = _precision_before


def _onednn_setting() -> Any | None:
    """Return torch's setting of oneDNN's products; None before torch 2.9, which has none."""
    import torch

    setting = getattr(torch.backends.mkldnn, "matmul", None)
    if setting is None:
        return None
    is_available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's
    if not is_available:
        return None
    return setting if hasattr(setting, "fp32_precision") else None


@cache
def _onednn_is_precise() -> bool:
    """Return whether oneDNN's products have single precision here though it may round them.

    Changes torch's setting for a moment: threads call it one after the other.
    """
    import torch

    setting = _onednn_setting()
    if setting is None:
        return False
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(1, 64, 64, generator=generator)
    doubles = factors.double()
    exact = torch.bmm(doubles, doubles)
    precision_before = setting.fp32_precision
    setting.fp32_precision = "bf16"
    try:
        product = torch.bmm(factors, factors)
    finally:
        setting.fp32_precision = precision_before
    error = (product - exact).abs().max()
    return float(error) < 1e-3  # 1e-5 in single precision, 1e-1 in bfloat16


@cache
def _controller() -> ThreadpoolController:
    """Return what limits the loaded libraries; they are looked for once: it takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    import_module("scipy.linalg")  # a library that is loaded later would not be limited
    return ThreadpoolController()


def run_all(calls: Sequence[Callable[[], object]], n_threads: int) -> None:
    """Make all calls, in this thread and in others; what one of them raises is raised here.

    Parameters
    ----------
    calls : sequence of callables
        They must not call `run_all` themselves: its threads could wait for each other.
    n_threads : int
        Threads at the most, this one included.
    """
    remaining_calls = iter(calls)  # all threads take from it

    def work() -> None:
        for call in remaining_calls:
            call()

    n_workers = min(n_threads, len(calls))
    n_others = n_workers - 1
    futures: list[Future[None]] = []
    with suppress(RuntimeError):  # the system gives no more threads: those that are there do it
        for _ in range(n_others):
            future = _pool().submit(work)
            futures.append(future)
    work()
    for future in futures:
        if not future.cancel():  # one that has not begun would find no calls
            future.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """Return threads that are started once.

    A new thread waits for a free core longer than a search takes.
    """
    return ThreadPoolExecutor(n_cores(), thread_name_prefix="polyseme")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay behind with the parent


def ordered_map(function: Callable[[T], R], items: Iterable[T], n_threads: int) -> Iterator[R]:
    """Apply a function in threads and yield the results in the order of the items, as they come.

    Parameters
    ----------
    function : callable
        Should spend its time where Python's lock is free: in libraries, or waiting for files.
    items : iterable
        Taken one by one from the calling thread, no further ahead than two for each thread.
    n_threads : int

    Yields
    ------
    object
        What the function returns; what it raises is raised here.
    """
    pool = ThreadPoolExecutor(n_threads)
    futures: deque[Future[R]] = deque()
    most_ahead = 2 * n_threads
    try:
        for item in items:
            future = pool.submit(function, item)
            futures.append(future)
            if len(futures) > most_ahead:
                first = futures.popleft()
                yield first.result()
        while futures:
            first = futures.popleft()
            yield first.result()
    finally:
        pool.shutdown(cancel_futures=True)


# ---------------------------------------------------------------------- memory

# Files in which Linux says how much memory a container may have: a number of bytes, or "max".
_CONTAINER_LIMIT_FILES = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def machine_bytes() -> int:
    """Return the bytes of memory of this machine, or of this container; 2⁶² where nobody says."""
    limits = []
    with suppress(AttributeError, ValueError, OSError):
        n_pages = os.sysconf("SC_PHYS_PAGES")
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        limits.append(n_pages * page_bytes)
    for file_name in _CONTAINER_LIMIT_FILES:
        with suppress(OSError, ValueError):
            text = Path(file_name).read_text()
            limits.append(int(text))
    return min(limits, default=2**62)


def check_memory(needed: float, subject: str, advice: str) -> None:
    """Raise where a job needs more memory than there is.

    Parameters
    ----------
    needed : float
        Bytes.
    subject : str
        What needs them, as the beginning of a sentence.
    advice : str
        What to do instead.
    """
    from polyseme.base.validation import InputError  # costs numpy

    available = machine_bytes()
    if needed > available:
        raise InputError(
            f"{subject} would need {in_bytes(needed)} of memory, and this machine has "
            f"{in_bytes(available)}; {advice}."
        )


def in_bytes(count: float) -> str:
    """Return a number of bytes for people."""
    gigabytes = count / 1e9
    if gigabytes >= 10:
        return f"{gigabytes:,.0f} GB"
    return f"{max(gigabytes, 0.1):.1f} GB"
