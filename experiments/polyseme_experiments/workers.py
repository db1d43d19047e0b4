"""Processes that do tasks side by side, one thread each.

In: tasks. Out: their messages, in the order in which they come; a process that dies or fails ends
the work with one sentence, and what was recorded before stays.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from polyseme._threads import one_thread
from polyseme._validation import InputError, PolysemeWarning
from polyseme_experiments.draws import Conditions
from polyseme_experiments.schedule import Space, Task, perform

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerError(RuntimeError):
    """Something went wrong inside a task; the message holds its trace."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


def work(
    tasks: list[Task], conditions: Conditions, n_workers: int
) -> Iterator[tuple[int, Task, str, Any]]:
    """Do tasks, several at a time, none before what it needs is there.

    Parameters
    ----------
    tasks : list of Task
        In the order in which they should start.
    conditions : Conditions
    n_workers : int
        Processes; 1 works in this one.

    Yields
    ------
    (int, Task, str, object)
        Which worker, on which task, and its message; see `perform`. A task ends with "done".
    """
    if n_workers == 1:
        with one_thread():  # as in every other process, so that no figure depends on their number
            for task in tasks:
                for kind, content in perform(task, conditions):
                    yield 0, task, kind, content
                yield 0, task, "done", None
        return
    pool = _Pool(conditions, min(n_workers, len(tasks)))
    try:
        yield from pool.run(list(tasks))
    finally:
        pool.close()


class _Pool:
    """Long-lived processes, each with a pipe."""

    def __init__(self, conditions: Conditions, n_workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        self.pipes: list[Connection] = []
        self.processes = []
        try:
            for _ in range(n_workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, conditions), daemon=True)
                process.start()
                theirs.close()
                self.pipes.append(ours)
                self.processes.append(process)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def run(self, tasks: list[Task]) -> Iterator[tuple[int, Task, str, Any]]:
        """Hand out tasks and pass on what comes back."""
        there: set[Space] = set()
        given = {space for task in tasks for space in task.gives}
        busy: dict[int, Task] = {}
        while tasks or busy:
            for number in range(len(self.pipes)):
                if number in busy:
                    continue
                # What nobody is going to give must be there already.
                ready = (t for t in tasks if all(s in there or s not in given for s in t.needs))
                task = next(ready, None)
                if task is not None:
                    tasks.remove(task)
                    busy[number] = task
                    with suppress(OSError):  # a process that has died is told of below
                        self.pipes[number].send(task)
            for pipe in wait([self.pipes[number] for number in busy]):
                assert isinstance(pipe, Connection)
                number = self.pipes.index(pipe)
                task = busy[number]
                kind, content = self._receive(pipe, task)
                if kind == "done":
                    there |= set(task.gives)
                    del busy[number]
                yield number, task, kind, content

    def _receive(self, pipe: Connection, task: Task) -> tuple[str, Any]:
        """Take one message; raise what went wrong."""
        try:
            kind, content = pipe.recv()
        except (EOFError, OSError):
            raise InputError(
                f"The process that worked on '{task.title}' died (out of memory, or killed); run "
                "the same command again to go on, with --workers 1 if memory is short."
            ) from None
        if kind == "wrong":
            raise InputError(content)
        if kind == "failed":
            raise WorkerError(f"'{task.title}' failed:\n{content}")
        return kind, content

    def close(self) -> None:
        """End every process, whatever it is doing."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()
        for pipe in self.pipes:
            pipe.close()


def _serve(pipe: Connection, conditions: Conditions) -> None:
    """Do what comes through the pipe; the parent decides when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", PolysemeWarning)  # the parent has said them
    with suppress(EOFError, OSError):  # without the parent there is nobody to tell
        while True:
            task = pipe.recv()
            try:
                for message in perform(task, conditions):
                    pipe.send(message)
                pipe.send(("done", None))
            except InputError as error:
                pipe.send(("wrong", str(error)))
            except BrokenPipeError:
                raise
            except Exception:
                pipe.send(("failed", traceback.format_exc()))
