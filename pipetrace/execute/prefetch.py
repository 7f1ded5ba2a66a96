"""Waiting by *prefetch*: all receives posted ahead, list order kept."""

from __future__ import annotations

from pipetrace.execute.step import Step


class PrefetchStep(Step):
    """See the module and `Step`."""

    def _play(self) -> None:
        for work in self._works:
            for receive in work.receives:
                self._post(receive)
        for work in self._works:
            for receive in work.receives:
                self._wait(receive)
            self._perform(work)
