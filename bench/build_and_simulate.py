"""CPU time and memory of building and simulating ZB-H1, from ten thousand actions to a million.

    python bench/build_and_simulate.py

Each size runs in a process of its own. Times are CPU seconds without imports, memory is the peak of the process.
"""

from __future__ import annotations

import subprocess
import sys

RANKS = 64
SIZES = (10_000, 100_000, 1_000_000)

_ONE = """
import resource, time
import pipetrace
microbatches = {actions} // (3 * {ranks})
begin = time.process_time()
schedule = pipetrace.build("zb-h1", {ranks}, microbatches)
built = time.process_time()
timeline = pipetrace.simulate(schedule)
done = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(f"{{len(schedule):>9,}}  {{built - begin:7.2f}}  {{done - built:8.2f}}  "
      f"{{(done - begin) / len(schedule) * 1e6:10.2f}}  {{peak:8,}}")
"""


def main() -> None:
    """Prints one line a size."""
    print("  actions  build s  simulate s  µs/action  peak MiB")
    for actions in SIZES:
        subprocess.run([sys.executable, "-c", _ONE.format(actions=actions, ranks=RANKS)], check=True)


if __name__ == "__main__":
    main()
