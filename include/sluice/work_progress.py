"""Reports the progress of long work while it runs: on a terminal in one line that is rewritten, else as lines of the log.

Code that does countable work calls `count_work` and `advance`; a caller that wants reports runs all of it under `show_progress`, as each
recorded run does. Progress is reported by subject: a flow or a stage. Flows run side by side, each in a thread of its own and under
`follow_subject`; a thread that reports on the same subject as its starter gets that one's `contextvars.copy_context()`.

The first seconds are not reported, so short work is never reported. Reports hold names of declarations, counts and sizes. One thread
says it; it has ended when `show_progress` ends.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, TextIO

from sluice.printable import escape_to_one_line, format_seconds, format_size
from sluice.step_times import StepTimes


@dataclass(eq=False)
class CountedWork:
    """A piece of work that is counted. unit: what of, as in "files examined".

    total: how many there are, or a function that says so, called once and only if the work takes long; None where nobody knows.
    total_bytes: of all of it; 0 where it is not measured by that. by_tasks: it is done by Spark's tasks, so that these say how far it is.
    only: the name of the item where there is one alone, which tells more than "0 of 1".
    """

    unit: str
    total: int | Callable[[], int] | None = None
    total_bytes: int = 0
    by_tasks: bool = False
    only: str = ""
    done: int = 0
    done_bytes: int = 0
    began: float = field(default_factory=lambda: time.monotonic())
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self, done: int = 1, size: int = 0) -> None:
        """Adds to the items and bytes that are done."""
        with self._lock:
            self.done += done
            self.done_bytes += size

    def describe(self, now: float, tasks: TaskCount | None) -> str:
        """What is done, of how many, at which rate, and about how long it still takes, as far as that is known; "" where nothing is."""
        if self.only:
            return self.only
        if callable(self.total):
            self.total = self.total()
        share = self._find_done_share(tasks)
        about = self.by_tasks and share is not None
        done = round(share * self.total) if about and share is not None and self.total else self.done
        if not done and not self.total:
            return ""
        of = f" of {self.total:,}" if self.total else ""
        said = [f"{'about ' if about else ''}{done:,}{of} {self.unit}" + ("" if share is None else f" ({share:.0%})")]
        elapsed = now - self.began
        if self.total_bytes:
            said.append(f"{format_size(round((share or 0.0) * self.total_bytes))} of {format_size(self.total_bytes)}")
        if done and elapsed > 0:
            said.append(_format_rate(done / elapsed))
        if share is not None and _TOLD_FROM <= share < 1 and elapsed > 0:
            said.append(f"about {format_seconds(elapsed * (1 - share) / share)} left")
        return ", ".join(said)

    def _find_done_share(self, tasks: TaskCount | None) -> float | None:
        """How much of it is done, from 0 to 1."""
        if self.by_tasks:
            return min(tasks.done / tasks.all, 1.0) if tasks and tasks.all else None
        if self.total_bytes:
            return min(self.done_bytes / self.total_bytes, 1.0)
        return min(self.done / self.total, 1.0) if isinstance(self.total, int) and self.total else None


_TOLD_FROM = 0.02
"""From this share on the rest is reckoned from what has been done."""


def _format_rate(per_second: float) -> str:
    if per_second >= 1:
        return f"{per_second:,.0f} a second"
    return f"{per_second * 60:,.1f} a minute"


class TaskCount(NamedTuple):
    """Of the Spark jobs that run now: tasks that are done, and all that are known."""

    done: int
    all: int


@dataclass(eq=False)
class FollowedSubject:
    """What a line is about. times: where its steps are counted. job_tags: what Spark knows its jobs by, beside those of `times`."""

    name: str
    times: StepTimes | None = None
    job_tags: Sequence[str] = ()
    works: list[CountedWork] = field(default_factory=list)
    began: float = field(default_factory=lambda: time.monotonic())
    said: int = 0
    """How many lines there have been of it."""
    due: float = 0.0

    @property
    def all_job_tags(self) -> tuple[str, ...]:
        """Everything that Spark knows its jobs by now."""
        return (*self.job_tags, *(self.times.job_tags if self.times else ()))

    def describe(self, now: float, tasks: TaskCount | None) -> str:
        """The subject, its step, its works from the outermost to the innermost, its Spark tasks, and how long it has taken."""
        step = self.times.step_in_progress if self.times else None
        said = [part for part in (step, *(work.describe(now, tasks) for work in list(self.works))) if part]
        if tasks and tasks.all:
            said.append(f"{tasks.done:,} of {tasks.all:,} Spark tasks")
        return escape_to_one_line(f"{self.name}: {'; '.join([*said, f'{format_seconds(now - self.began)} so far'])}")


@dataclass(frozen=True)
class Pace:
    """Seconds from the start of a subject to its first line, and between two lines: each time `growth` times as long, up to `most`."""

    first: float = 10.0
    every: float = 30.0
    growth: float = 1.3
    most: float = 300.0

    def seconds_after(self, said: int) -> float:
        """Returns the seconds to wait before the next progress line. said: how many lines were printed."""
        return self.first if not said else min(self.every * self.growth ** (said - 1), self.most)


IN_LOG = Pace()
ON_TERMINAL = Pace(every=2.0, growth=1.0)
"""There a line is written again in its place."""

CountTasks = Callable[[Mapping[str, Sequence[str]]], Mapping[str, TaskCount]]
"""Takes what Spark knows jobs by, by subject; gives the tasks of those that run now. Must not raise."""


class ProgressBoard:
    """All subjects that are followed, and the thread that says how far they are."""

    def __init__(self, title: str, out: TextIO, count_tasks: CountTasks | None = None, pace: Pace | None = None) -> None:
        self._title, self._out, self._count_tasks = title, out, count_tasks
        self._terminal = out.isatty()
        self._pace = pace or (ON_TERMINAL if self._terminal else IN_LOG)
        self._subjects: list[FollowedSubject] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_line_open = False

    def add(self, subject: FollowedSubject) -> None:
        """Follow it from now on."""
        subject.due = subject.began + self._pace.seconds_after(0)
        with self._lock:
            self._subjects.append(subject)

    def remove(self, subject: FollowedSubject) -> None:
        """It has ended."""
        with self._lock:
            self._subjects.remove(subject)

    def say_what_is_due(self, now: float) -> None:
        """Write a line of each subject whose time has come; on a terminal one of all that have gone on for long."""
        with self._lock:
            due = [one for one in self._subjects if one.due <= now]
            told = [one for one in self._subjects if one.said or one in due] if self._terminal else due
        if not due:
            return
        names = [f"{position} {one.name}" for position, one in enumerate(told)]  # one name may be followed twice
        tags = {name: one.all_job_tags for name, one in zip(names, told, strict=True)}
        tasks = self._count_tasks(tags) if self._count_tasks else {}
        lines = [one.describe(now, tasks.get(name)) for name, one in zip(names, told, strict=True)]
        for one in due:
            one.said += 1
            one.due = now + self._pace.seconds_after(one.said)
        self._write_lines(lines)

    def keep_saying(self) -> None:
        """Say it until `end`: the body of the thread. What cannot be said is no reason for work to fail."""
        while not self._ended.wait(_LOOK_EVERY):
            with contextlib.suppress(Exception):
                self.say_what_is_due(time.monotonic())

    def end(self) -> None:
        """Let the thread end, and take the line of a terminal away."""
        self._ended.set()

    def clear_terminal_line(self) -> None:
        """Take the line away that is written again and again."""
        if self._is_line_open:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._is_line_open = False

    def _write_lines(self, lines: Sequence[str]) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._out.write(f"\r{f'{self._title}: ' + ' | '.join(lines)}"[: width + 1] + "\x1b[K")
            self._is_line_open = True
        else:
            self._out.writelines(f"sluice: {self._title}, {line}\n" for line in lines)
        self._out.flush()


_LOOK_EVERY = 1.0


class _Followed(NamedTuple):
    board: ProgressBoard
    subject: FollowedSubject


_CURRENT: ContextVar[_Followed | None] = ContextVar("whose progress this thread's work is", default=None)


@contextmanager
def show_progress(
    title: str, subject: FollowedSubject, count_tasks: CountTasks | None = None, out: TextIO | None = None
) -> Iterator[ProgressBoard]:
    """Say meanwhile how far the block's work is. title: what all lines begin with. subject: what the block is, as long as no other is followed.

    Within another `show_progress` it is one more subject of that. out: standard error unless given.
    """
    current = _CURRENT.get()
    if current is not None:
        with _follow_on_board(current.board, subject):
            yield current.board
        return
    board = ProgressBoard(escape_to_one_line(title), out or sys.stderr, count_tasks)
    thread = threading.Thread(target=board.keep_saying, name="sluice progress", daemon=True)
    thread.start()
    try:
        with _follow_on_board(board, subject):
            yield board
    finally:
        board.end()
        thread.join(_PATIENCE)
        board.clear_terminal_line()


_PATIENCE = 5.0
"""Seconds to wait for a thread that may be asking Spark."""


@contextmanager
def follow_subject(subject: FollowedSubject) -> Iterator[None]:
    """Let what this thread does in the block be said of that subject, if anybody wants it said."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with _follow_on_board(current.board, subject):
        yield


@contextmanager
def _follow_on_board(board: ProgressBoard, subject: FollowedSubject) -> Iterator[None]:
    board.add(subject)
    token = _CURRENT.set(_Followed(board, subject))
    try:
        yield
    finally:
        _CURRENT.reset(token)
        board.remove(subject)


@contextmanager
def count_work(
    unit: str,
    total: int | Sequence[str] | Callable[[], int] | None = None,
    total_bytes: int = 0,
    by_tasks: bool = False,
) -> Iterator[CountedWork]:
    """Count a piece of the work of this thread's subject, as `CountedWork` says. Where nobody wants it said, it is counted and not said.

    total: also the names of the items, where these are declarations.
    """
    names = total if isinstance(total, Sequence) else ()
    number = len(total) if isinstance(total, Sequence) else total
    work = CountedWork(unit, number, total_bytes, by_tasks, only=names[0] if len(names) == 1 else "")
    current = _CURRENT.get()
    if current is None:
        yield work
        return
    current.subject.works.append(work)
    try:
        yield work
    finally:
        current.subject.works.remove(work)
