#!/usr/bin/env bash
# Computes the tables of scripts/gpu_tables.txt on one GPU, and writes those of a line when they are finished or stopped:
#   scripts/gpu_tables.sh INPUTS DATA OUTPUT [SEEDS] [WORKERS] [MINUTES] [OPTION...]
# INPUTS is a folder of `python -m scripts.gpu_inputs`, DATA the name of an archive in it, SEEDS a number, WORKERS that of
# processes. Further options go to `multitask experiments run`, e.g. --device cpu --epoch-size 16. A second call with the
# same OUTPUT goes on: finished stages are found again. TABLES names another list; PYTHON the Python, as in gpu_best.sh.
# The project must be installed there: `pip install --no-deps --no-build-isolation -e .` needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
inputs=$1 name=$2 output=$3 seeds=${4:-3} workers=${5:-8} minutes=${6:-600}
shift $(($# < 6 ? $# : 6))
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}
mkdir -p "$output" "$output.runs"
[[ -d "$output.runs/$name" ]] || tar -xJf "$inputs/$name.tar.xz" -C "$output.runs"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1
end=$((SECONDS + 60 * minutes))
while read -r preset tables && ((SECONDS < end)); do
  here=$output/$preset-${tables//,/-}
  report=$output.runs/report-$preset-${tables//,/-}
  timeout --signal=TERM --kill-after=20 $((end - SECONDS)) "$python" -m multitask experiments run "$preset" --tables "$tables" \
    --start "$inputs/start" --data "$output.runs/$name" --seeds "$seeds" --workers "$workers" --runs "$output.runs/runs" \
    --report "$report" "$@" > "$output.runs/$(basename "$here").log" 2>&1 && status=finished || status="stopped (exit code $?)"
  # Tables with a failed row, or that were stopped, have their other rows.
  if "$python" -m multitask report "$preset" --runs "$output.runs/runs" --report "$report" >> "$output.runs/$(basename "$here").log" 2>&1; then
    mkdir -p "$here" && cp "$report"/{results,scores,answers}.parquet "$report/report.md" "$here/"
  else
    status="$status, without a report"
  fi
  echo "$preset $tables: $status" >> "$output/tables.log"
done < <(grep -v '^#' "${TABLES:-scripts/gpu_tables.txt}")
