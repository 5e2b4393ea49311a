#!/usr/bin/env bash
# Runs a preset and writes the report: ./run_experiments.sh [PRESET] [options]
# PRESET (default: sample) and options are those of `multitask experiments run`; paths are relative to this folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/environment.sh

if [[ $# -eq 0 || "$1" == -* ]]; then
  set -- sample "$@"
fi
.venv/bin/python -m multitask experiments run "$@"
