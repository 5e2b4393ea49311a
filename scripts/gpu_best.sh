#!/usr/bin/env bash
# Trains the trials of scripts/gpu_best.txt on one GPU, several at once, and writes each score and prediction at once:
#   scripts/gpu_best.sh INPUTS DATA OUTPUT [SEEDS] [PROCESSES] [DEVICE]
# INPUTS is a folder of `python -m scripts.gpu_inputs`, DATA the name of an archive in it, SEEDS e.g. "0 1 2". A second
# call with the same OUTPUT goes on: finished trials are found again, stopped ones go on from their last saved state.
# PYTHON names the Python (default: that of .venv, else python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
inputs=$1 name=$2 output=$3 seeds=${4:-0} processes=${5:-4} device=${6:-cuda}
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}
mkdir -p "$output" "$output.runs"
[[ -d "$output.runs/$name" ]] || tar -xJf "$inputs/$name.tar.xz" -C "$output.runs"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=2 CUBLAS_WORKSPACE_CONFIG=:4096:8

trial() { # one line of the list, with its seed first
  set -o pipefail # of the shell that xargs begins
  local seed trial options run
  read -r seed trial options <<< "$1"
  # shellcheck disable=SC2086 # the options are words
  if run=$("$python" -m multitask finetune --start "$inputs/start" --data "$output.runs/$name" $options --seed "$seed" \
    --name "$trial-$seed" --runs "$output.runs/runs" --device "$device" 2> "$output.runs/$trial-$seed.log" | tail -n 1); then
    "$python" -m multitask predict --model "$run" --data "$output.runs/$name" --device "$device" \
      --output "$output.runs/predictions/$trial-$seed" > "$output.runs/predict-$trial-$seed.log" 2>&1 \
      || echo "$trial-$seed: no predictions" >> "$output/failed.txt"
    flock "$output.runs" "$python" - "$run" "$trial" "$seed" "$output" << 'PYTHON'
import json, sys, tarfile
from pathlib import Path

run, trial, seed, output = Path(sys.argv[1]), *sys.argv[2:]
best = max(map(json.loads, (run / "metrics.jsonl").open()), key=lambda line: line["scores"].get("overall") or 0)
minutes = json.loads((run / "DONE").read_text())["seconds"] / 60
trials = Path(output) / "trials.jsonl"
line = json.dumps({"trial": trial, "seed": int(seed), "minutes": minutes, **best["scores"], "dev": best["dev"]}) + "\n"
if not trials.is_file() or line not in trials.read_text():  # a second call finds finished trials again
    with trials.open("a") as file:
        file.write(line)
part = Path(output) / "predictions.tar.xz.part"
with tarfile.open(part, "w:xz") as archive:
    archive.add(f"{output}.runs/predictions", "predictions")
part.rename(Path(output) / "predictions.tar.xz")
PYTHON
  else
    tail -n 3 "$output.runs/$trial-$seed.log" | sed "s/^/$trial-$seed: /" >> "$output/failed.txt"
  fi
}
export -f trial
inputs=$(realpath "$inputs") output=$(realpath "$output")
export inputs name output device python
for seed in $seeds; do
  grep -v '^#' scripts/gpu_best.txt | sed "s/^/$seed /"
done | xargs -P "$processes" -d '\n' -I {} bash -c 'trial "$1"' _ {}
