"""A CPU as a device: every stream is a thread.

What the code over it does on a GPU it does here too, order and events included, so that it can be tested without one.
Threads share Python's lock: sleeping work runs side by side, computing work only where torch lets go of the lock.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from pipetrace.execute.devices.base import Event, Stream
from pipetrace.execute.sleeping import sleep_until, take_turns


class ThreadEvent:
    """A point in a thread's work."""

    def __init__(self) -> None:
        self._reached = threading.Event()

    def done(self) -> bool:
        """See `Event`."""
        return self._reached.is_set()

    def wait(self) -> None:
        """Returns when everything before it has run."""
        self._reached.wait()

    def reach(self) -> None:
        """Everything before it has run."""
        self._reached.set()


class ThreadStream:
    """A thread that does what it is given.

    Args:
        name: Of the thread.
        fail: Is told what work raised.
        failed: Whether any stream's work raised; then nothing more is run, but events are still reached, so that
            nobody waits for ever.
    """

    def __init__(self, name: str, fail: Callable[[BaseException], None], failed: Callable[[], bool]) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._fail, self._failed = fail, failed
        self.native_id = 0
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), name=name, daemon=True)
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        self.native_id = threading.get_native_id()
        started.set()
        while (work := self._work.get()) is not None:
            work()

    def run(self, work: Callable[[], None]) -> None:
        """See `Stream`."""

        def guarded() -> None:
            if self._failed():
                return
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - whatever it is, `synchronize` raises it
                self._fail(error)

        self._work.put(guarded)

    def record(self) -> ThreadEvent:
        """See `Stream`."""
        event = ThreadEvent()
        self._work.put(event.reach)
        return event

    def wait(self, event: Event) -> None:
        """See `Stream`."""
        if not isinstance(event, ThreadEvent):
            raise TypeError(f"{type(event).__name__} is no event of this device")
        self._work.put(event.wait)

    def close(self) -> None:
        """Ends the thread behind all that it was given."""
        self._work.put(None)
        self._thread.join()


class ThreadDevice:
    """See the module."""

    def __init__(self) -> None:
        take_turns()
        self._streams: list[ThreadStream] = []
        self._error: BaseException | None = None

    @property
    def tensors(self) -> torch.device:
        """See `Device`."""
        return torch.device("cpu")

    def stream(self) -> ThreadStream:
        """See `Device`."""
        stream = ThreadStream(f"stream {len(self._streams)}", self._fail, lambda: self._error is not None)
        self._streams.append(stream)
        return stream

    def sleep(self, ns: int) -> None:
        """See `Device`."""
        sleep_until(time.perf_counter_ns() + ns)

    def use(self, value: torch.Tensor) -> None:
        """See `Device`: work holds what it reads."""

    def recording(self) -> profile:
        """See `Device`: all threads are recorded, not only the one that starts it."""
        from torch._C._profiler import _ExperimentalConfig

        return profile(
            activities=[ProfilerActivity.CPU], experimental_config=_ExperimentalConfig(profile_all_threads=True)
        )

    def names(self, streams: list[Stream]) -> list[str]:
        """See `Device`: threads go by their system's number."""
        return [str(stream.native_id) for stream in streams if isinstance(stream, ThreadStream)]

    def synchronize(self) -> None:
        """See `Device`."""
        for event in [stream.record() for stream in self._streams]:
            event.wait()
        if self._error is not None:
            raise self._error

    def facts(self) -> dict[str, Any]:
        """See `Device`."""
        return {"device": "cpu", "streams": "threads"}

    def close(self) -> None:
        """Ends the threads."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
