#!/usr/bin/env bash
# Computes the tables of scripts/gpu_tables.txt on one GPU, one after the other, and writes each when it is finished:
#   scripts/gpu_tables.sh INPUTS DATA OUTPUT [SEEDS] [WORKERS] [OPTION...]
# INPUTS is a folder of `python -m scripts.gpu_inputs`, DATA the name of an archive in it, SEEDS a number, WORKERS that of
# processes. Further options go to `multitask experiments run`, e.g. --device cpu --epoch-size 16. A second call with the
# same OUTPUT goes on: finished stages are found again. TABLES names another list; PYTHON the Python, as in gpu_best.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
inputs=$1 name=$2 output=$3 seeds=${4:-3} workers=${5:-8}
shift $(($# < 5 ? $# : 5))
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}
mkdir -p "$output" "$output.runs"
[[ -d "$output.runs/$name" ]] || tar -xJf "$inputs/$name.tar.xz" -C "$output.runs"
export PYTHONPATH=$PWD OMP_NUM_THREADS=1
while read -r preset table; do
  here=$output/$preset-$table
  "$python" -m multitask experiments run "$preset" --tables "$table" --start "$inputs/start" --data "$output.runs/$name" \
    --seeds "$seeds" --workers "$workers" --runs "$output.runs/runs" --report "$output.runs/report" "$@" \
    > "$output.runs/$preset-$table.log" 2>&1 && status=finished || status="failed (exit code $?)"
  # A table with a failed row has its other rows.
  if [[ -f $output.runs/report/results.parquet ]]; then
    mkdir -p "$here" && mv "$output.runs/report"/{results.parquet,report.md} "$here/"
  fi
  echo "$preset $table: $status" >> "$output/tables.log"
done < <(grep -v '^#' "${TABLES:-scripts/gpu_tables.txt}")
