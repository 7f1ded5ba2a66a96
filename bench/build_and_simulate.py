"""CPU time and memory of building, checking and simulating, from ten thousand actions to a million.

    python bench/build_and_simulate.py

ZB-V on 64 ranks (F, I, W; two chunks a rank) for growing m, then 1F1B with p = 32, m = 256, for which the closest peer
(Victarry/PP-Schedule-Visualization) was measured at 21,000 actions a second. Each line is a process of its own; times
are CPU seconds without imports, memory is the process's peak.
"""

from __future__ import annotations

import subprocess
import sys

PEER_ACTIONS_PER_SECOND = 21_000

_ONE = """
import resource, time
import pipetrace
begin = time.process_time()
schedule = pipetrace.build({name!r}, {ranks}, {microbatches})
built = time.process_time()
timeline = pipetrace.simulate(schedule)
done = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
rate = len(schedule) / (done - begin)
print(f"{name:<8} {{len(schedule):>9,}}  {{built - begin:7.2f}}  {{done - built:10.2f}}  {{done - begin:7.2f}}"
      f"  {{rate:11,.0f}}  {{rate / {peer}:6.0f}}x  {{peak:8,}}")
"""


def main() -> None:
    """Prints one line a size."""
    print("schedule   actions  build s  simulate s  total s  actions / s  / peer  peak MiB", flush=True)
    ranks = 64
    sizes = [("zbv", ranks, actions // (6 * ranks)) for actions in (10_000, 30_000, 100_000, 300_000, 1_000_000)]
    for name, p, m in [*sizes, ("1f1b", 32, 256)]:
        code = _ONE.format(name=name, ranks=p, microbatches=m, peer=PEER_ACTIONS_PER_SECOND)
        subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    main()
