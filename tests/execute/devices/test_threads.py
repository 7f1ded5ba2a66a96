from __future__ import annotations

import threading

import pytest

from pipetrace.execute.devices.threads import ThreadDevice


@pytest.fixture
def device() -> object:
    made = ThreadDevice()
    yield made
    made.close()


def test_a_stream_keeps_its_order(device: ThreadDevice) -> None:
    seen: list[int] = []
    stream = device.stream()
    for number in range(100):
        stream.run(lambda number=number: seen.append(number))  # type: ignore[misc]
    device.synchronize()
    assert seen == list(range(100))


def test_streams_run_side_by_side(device: ThreadDevice) -> None:
    """Each waits for the other to have begun: one after the other would never end."""
    meet = threading.Barrier(2, timeout=60)
    for stream in (device.stream(), device.stream()):
        stream.run(lambda: (meet.wait(), None)[1])
    device.synchronize()


def test_an_event_orders_two_streams(device: ThreadDevice) -> None:
    first, second = device.stream(), device.stream()
    gate = threading.Event()
    seen: list[str] = []

    def opened() -> None:
        gate.wait(60)
        seen.append("first")

    first.run(opened)
    event = first.record()
    second.wait(event)
    second.run(lambda: seen.append("second"))
    assert not event.done()
    gate.set()
    event.wait()
    assert event.done()
    device.synchronize()
    assert seen == ["first", "second"]


def test_what_work_raises_comes_out_and_nothing_hangs(device: ThreadDevice) -> None:
    first, second = device.stream(), device.stream()
    ran = []

    def broken() -> None:
        raise RuntimeError("no more memory")

    first.run(broken)
    second.wait(first.record())
    second.run(lambda: ran.append(1))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no more memory"):
            device.synchronize()
    assert ran == []


def test_streams_go_by_their_threads_number(device: ThreadDevice) -> None:
    streams = [device.stream(), device.stream()]
    ids: list[str] = []
    for stream in streams:
        stream.run(lambda: ids.append(str(threading.get_native_id())))
        device.synchronize()
    assert device.names(list(streams)) == ids
    assert len(set(ids)) == 2
