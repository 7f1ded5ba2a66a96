#!/usr/bin/env bash
# Runs schedules on this machine's GPU, all ranks in one process, and holds each against its ideal: gradients, makespan,
# bubble. Where torch sees no GPU it does the same on the CPU. Needs Python with torch, numpy, typer, rich and protobuf;
# what else pipetrace imports is taken from bench/wheels, where `gpu_check.sh pack` puts it on a machine with an index.
#
#   bench/gpu_check.sh pack           # once, where packages can be downloaded
#   bench/gpu_check.sh [OUT]          # then here; OUT/ keeps the runs, their diffs and table.md (default: a temporary folder)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
wheels=bench/wheels

if [ "${1:-}" = pack ]; then
  # Wheels of compiled packages are for one Python and system each: name others with PACK_FOR.
  for version in ${PACK_FOR:-3.10 3.11 3.12 3.13}; do
    "$python" -m pip download --quiet --no-deps --only-binary :all: --python-version "$version" \
      --platform manylinux2014_x86_64 --dest "$wheels" -c constraints.txt msgspec tomli-w
  done
  ls "$wheels"
  exit
fi

out=${1:-$(mktemp -d)}
mkdir -p "$out"
lib=$(mktemp -d)
trap 'rm -rf "$lib"' EXIT
export PYTHONPATH="$PWD:$lib${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c "import msgspec, tomli_w" 2>/dev/null ||
  "$python" -m pip install --quiet --no-index --no-deps --find-links "$wheels" --target "$lib" msgspec tomli-w
if command -v nvidia-smi >/dev/null; then nvidia-smi; else echo "no nvidia-smi"; fi
"$python" bench/gpu_check.py "$out"
