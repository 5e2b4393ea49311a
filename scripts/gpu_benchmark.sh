#!/usr/bin/env bash
# Measures on one GPU what fits into the minutes, and writes it into one file:
#   scripts/gpu_benchmark.sh INPUTS FILE [MINUTES] [OPTION...]
# INPUTS is a folder of `python -m scripts.gpu_inputs`. Further options go to `python -m benchmarks.gpu`, e.g. --device cpu
# --small. PYTHON names the Python, as in gpu_best.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
inputs=$1 file=$2 minutes=${3:-6}
shift $(($# < 3 ? $# : 3))
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} BENCHMARK_START=$inputs/start "$python" -m benchmarks.gpu --output "$folder" --minutes "$minutes" "$@" && code=0 || code=$?
cat "$folder/summary.md" "$folder/results.json" > "$file.part" && mv "$file.part" "$file"
exit "$code"
