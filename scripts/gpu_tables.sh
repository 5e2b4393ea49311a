#!/usr/bin/env bash
# Computes the tables of scripts/gpu_tables.txt on one GPU, and packs the runs of a line when it is finished or stopped:
#   scripts/gpu_tables.sh INPUTS DATA OUTPUT [SEEDS] [WORKERS] [MINUTES] [OPTION...]
# INPUTS is a folder of `python -m scripts.gpu_inputs`, DATA the name of an archive in it, and an archive `senteval` has
# SentEval's tasks. SEEDS is a number, WORKERS that of processes: about as many as cores. Further options go to
# `python -m scripts.gpu_grid`, which says what to do with OUTPUT, e.g. --device cpu --epoch-size 16. A second call with
# the same OUTPUT goes on: finished stages are found again. TABLES names another list; PYTHON the Python, as in
# gpu_best.sh.
# The project must be installed there: `pip install --no-deps --no-build-isolation -e .` needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
inputs=$1 name=$2 output=$3 seeds=${4:-3} workers=${5:-16} minutes=${6:-600}
shift $(($# < 6 ? $# : 6))
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}
mkdir -p "$output" "$output.runs"
suites=()
[[ ! -f "$inputs/senteval.tar.xz" ]] || suites=(--suites-data "$output.runs/senteval")
for archive in "$name" ${suites[0]:+senteval}; do
  [[ -d "$output.runs/$archive" ]] || tar -xJf "$inputs/$archive.tar.xz" -C "$output.runs"
done
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1
end=$((SECONDS + 60 * minutes))
while read -r preset tables && ((SECONDS < end)); do
  here=$preset-${tables//,/-}
  timeout --signal=TERM --kill-after=60 $((end - SECONDS)) "$python" -m scripts.gpu_grid "$preset" "$tables" "$output/$here.parquet" \
    --start "$inputs/start" --data "$output.runs/$name" --seeds "$seeds" --workers "$workers" --runs "$output.runs/runs" "${suites[@]}" "$@" \
    > "$output.runs/$here.log" 2>&1 && status=finished || status="stopped (exit code $?)"
  echo "$preset $tables: $status" >> "$output/tables.log"
done < <(grep -v '^#' "${TABLES:-scripts/gpu_tables.txt}")
