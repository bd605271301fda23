"""Threads of this process in place of a cluster: they take the tasks of its workers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from typing import Any, Self

from dbern.planning.cost import Cost
from dbern.run.workers import check_own_memory, delayed


class _Task(Future[Any]):
    """A future of a thread of this process, with the attributes of distributed's that are used."""

    @property
    def key(self) -> _Task:
        return self

    @property
    def status(self) -> str:
        if not self.done():
            return "pending"
        return "finished" if self.exception() is None else "error"


class Threads:
    """Threads of this process, with the methods of `DaskWorkers`.

    Decoding and counting release the interpreter's lock, so threads use all cores. Ctrl-C waits for
    none: waiting tasks are dropped, and running ones end by themselves, or with the process.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting = SimpleQueue[Callable[[], None] | None]()

    def __enter__(self) -> Self:
        for _ in range(self._count):
            Thread(target=self._work, name="dbern", daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        del raised
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        for _ in range(self._count):
            self._waiting.put(None)

    def thread_count(self) -> int:
        """Return the number of threads."""
        return self._count

    def submit(self, task: Callable[..., Any], *arguments: object) -> _Task:
        """Return the future of a task; futures among its arguments, and in lists, are resolved."""
        future = _Task()
        self._waiting.put(partial(_run, future, task, arguments))
        return future

    def compute(self, task: Callable[[Any], Any], argument: Any) -> _Task:
        """Return the future of a task of what a Dask graph computes, in one thread."""
        return self.submit(partial(delayed(task, argument).compute, scheduler="synchronous"))

    def require_scheduler(self) -> AbstractContextManager[None]:
        """Return a context that raises nothing: there is no scheduler."""
        return nullcontext()

    def as_completed(self) -> _AsCompleted:
        """Return a collection of futures, which yields them as they finish."""
        return _AsCompleted()

    def is_at_work(self) -> bool:
        """Return true: threads end with the process."""
        return True

    def require_versions(self, origins: Collection[str]) -> dict[str, str]:
        """Require nothing: the process that planned is the one that counts."""
        del origins
        return {}

    def check_memory(self, cost: Cost) -> None:
        """Refuse a process that may use less memory than the plan says."""
        check_own_memory(max(cost.client_bytes, cost.memory(self._count)))

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            run()
            del run  # which holds partial sums, while there is nothing to do


def _run(future: _Task, task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        future.set_result(task(*map(_resolved, arguments)))
    except BaseException as error:  # noqa: BLE001 -- whoever waits for the future gets it
        future.set_exception(error)


def _resolved(argument: Any) -> Any:
    """Return the result of a future, which was submitted before the task: a thread has it."""
    if type(argument) is list:
        return [_resolved(element) for element in argument]
    return argument.result() if type(argument) is _Task else argument


class _AsCompleted:
    """Tasks of threads as they finish, like distributed's `as_completed`."""

    def __init__(self) -> None:
        self.thread_condition = Condition()
        self._ready = SimpleQueue[_Task]()
        self._count = 0

    def add(self, task: _Task) -> None:
        self._count += 1
        task.add_done_callback(self._put)

    def _put(self, task: Any) -> None:
        with self.thread_condition:
            self._ready.put(task)
            self.thread_condition.notify()

    def has_ready(self) -> bool:
        return not self._ready.empty()

    def is_empty(self) -> bool:
        return self._count == 0

    def __next__(self) -> _Task:
        self._count -= 1
        return self._ready.get()
