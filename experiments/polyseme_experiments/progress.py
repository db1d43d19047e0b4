"""What a person sees while experiments run: what each process does, and how long is left.

In: messages of the workers. Out: bars on a terminal, plain lines elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from polyseme_experiments.methods import get_method
from polyseme_experiments.schedule import SPACE_COST, Task


class Display:
    """Progress of many runs.

    Parameters
    ----------
    tasks : sequence of Task
        What is going to be done.
    n_known : int
        Runs that need not be done again.
    n_workers : int
    say : callable, optional
        Takes a line at each step; used where there is no terminal.
    terminal : bool
        Whether to draw bars on standard error.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        n_known: int = 0,
        n_workers: int = 1,
        say: Callable[[str], None] | None = None,
        terminal: bool = False,
    ) -> None:
        self.total = sum(task.cost for task in tasks)
        self.n_runs = sum(len(task.methods) for task in tasks)
        self.done, self.n_done = 0.0, 0
        self.n_workers = n_workers
        self.start = time.monotonic()
        self.doing: dict[int, str] = {}
        self.bar: Any = _bars() if terminal and tasks else None
        # Bars say it all; lines between them would only push them about.
        self.say = say if say is not None and self.bar is None else lambda line: None
        if n_known:
            known = f"{n_known} runs are recorded already; {self.n_runs} to go"
            self.say(known) if self.bar is None else self.bar.console.print(known)

    def __enter__(self) -> Self:
        """Open the bars."""
        if self.bar is not None:
            self.bar.start()
            self.whole = self.bar.add_task("all", total=self.total, count="", note="")
            self.lines = [
                self.bar.add_task("waiting", total=None, count="", note="")
                for _ in range(self.n_workers)
            ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the bars."""
        if self.bar is not None:
            self.bar.stop()

    def tell(self, worker: int, task: Task, kind: str, content: Any) -> None:
        """Take one message; see `polyseme_experiments.workers.work`."""
        if kind == "start":
            self.doing[worker] = str(content)
        elif kind == "space":
            self.done += SPACE_COST
            self._line(task, f"concept space of {task.space} dimensions", sum(content.values()))
        elif kind == "record":
            method = get_method(content["method"])
            self.done += method.cost
            self.n_done += 1
            self._line(task, method.title, content["seconds"])
        elif kind == "done":
            self.doing.pop(worker, None)
        self._draw()

    def left(self) -> float | None:
        """Give about how many seconds are left; None before the first step."""
        if not self.done:
            return None
        return (time.monotonic() - self.start) * (self.total - self.done) / self.done

    def _line(self, task: Task, what: str, seconds: float) -> None:
        """Say that something is done."""
        left = self.left()
        about = "" if left is None else f"; about {duration(left)} left"
        self.say(f"[{self.n_done}/{self.n_runs}] {task.title}: {what}, {seconds:.0f} s{about}")

    def _draw(self) -> None:
        """Bring the bars up to date."""
        if self.bar is None:
            return
        left = self.left()
        note = "" if left is None else f"about {duration(left)} left"
        count = f"{self.n_done} of {self.n_runs} runs"
        self.bar.update(self.whole, completed=self.done, count=count, note=note)
        for worker, line in enumerate(self.lines):
            self.bar.update(line, description=self.doing.get(worker, "waiting"))


def duration(seconds: float) -> str:
    """Write a time in words: "45 s", "12 min", "1 h 05 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _bars() -> Any:
    """Make the bars of a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )
