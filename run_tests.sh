#!/usr/bin/env bash
# Lint, format, types and tests. A lane is a named part of this: add one to both `case` statements and to the usage line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage="usage: ./run_tests.sh [all|browser|docs|processors] [options of pytest]
    all: also the slow tests (processes, kills, full disks), those of packages that are installed by hand (ray, playwright),
        and more examples of each property
    browser: only the page, in Chromium; needs pip install playwright axe-playwright-python and apt install chromium
    docs: only the documentation: builds the site, runs tutorials and commands, installs the wheel; many minutes
    processors: only the numeric tests, with the instructions of other processors, with one and with two threads"
lane=whole
case "${1:-}" in
  -h | --help)
    echo "$usage"
    exit
    ;;
  all | browser | docs | processors)
    lane=$1
    shift
    ;;
  "" | -*) ;;
  *)
    if [[ ! -e "${1%%::*}" ]]; then
      echo "error: $1 is neither a lane nor a path; $usage" >&2
      exit 2
    fi
    ;;
esac

source scripts/environment.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy

export OMP_NUM_THREADS=1
unset PYTHONDONTWRITEBYTECODE # without bytecode, each of the many processes compiles all modules and tests again
tests=(.venv/bin/python -m pytest -n 2 --dist worksteal)
case "$lane" in
  whole) "${tests[@]}" "$@" ;;
  all) "${tests[@]}" --hypothesis-profile many -m "not gpu and not docs" "$@" ;;
  browser) "${tests[@]}" -m browser tests/multitask/service/explore/test_browser.py "$@" ;;
  docs)
    ./build_docs.sh
    .venv-docs/bin/python -m pytest -n 2 --dist worksteal -m "docs or not docs" tests/docs "$@"
    ;;
  processors)
    numeric=(tests/minbert tests/multitask/{objectives,models,evaluation,training})
    # MKL reads MKL_ENABLE_INSTRUCTIONS on Intel's processors and MKL_CBWR on all.
    # On processors with AMX, torch's attention in bf16 fails with fewer instructions than oneDNN's; so both are limited.
    for setting in \
      "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX2" \
      "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=COMPATIBLE" \
      "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2"; do
      for threads in 1 2; do
        echo "$setting OMP_NUM_THREADS=$threads"
        # shellcheck disable=SC2086 # the settings are words
        env $setting OMP_NUM_THREADS=$threads "${tests[@]}" -n $((2 / threads)) "${numeric[@]}" "$@"
      done
    done
    ;;
esac
