# Makes .venv with the pinned packages and this folder as an editable install: `bash scripts/environment.sh [EXTRA ...]`.
# Sourced by run_experiments.sh and run_tests.sh. Installs again only after requirements.txt or pyproject.toml changed, or
# where .venv no longer leads to this folder; otherwise it needs no network.

extras=""
if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then # sourced, the arguments are those of the other script
  set -euo pipefail
  cd "$(dirname "$0")/.."
  extras="$*"
fi

is_recent_python() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if [[ ! -x .venv/bin/python ]]; then
  for candidate in "${PYTHON:-python3.11}" python3.11 python3.12 python3.13 python3; do
    if is_recent_python "$candidate"; then
      echo "creating .venv with $candidate"
      "$candidate" -m venv --clear .venv
      break
    fi
  done
fi
if ! is_recent_python .venv/bin/python; then
  echo "error: no Python 3.11 or newer found; install one or name one: PYTHON=/path/to/python3.11 $0" >&2
  echo "       (first remove a .venv that an older Python created)" >&2
  exit 1
fi

.venv/bin/python -I scripts/check_environment.py scripts $extras
install=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
stamp=.venv/installed.txt
if ! cat requirements.txt pyproject.toml | cmp --silent - "$stamp"; then
  echo "installing the packages of requirements.txt into .venv: minutes, 2 GB"
  "${install[@]}" --requirement requirements.txt
  rm -f "$stamp"
fi
if [[ -n "$extras" ]]; then
  echo "installing the extras $extras into .venv"
  "${install[@]}" --constraint requirements.txt --no-build-isolation --editable ".[${extras// /,}]"
fi
if [[ ! -e "$stamp" ]] || ! .venv/bin/python -I scripts/check_environment.py packages; then
  # Build isolation would download another setuptools than the one just installed.
  "${install[@]}" --no-deps --no-build-isolation --editable .
  cat requirements.txt pyproject.toml > "$stamp"
fi
