#!/usr/bin/env bash
# Lint, format, types, tests: ./run_tests.sh [options of pytest]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/environment.sh

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n 2 "$@"
