# Sourced by run_experiments.sh and run_tests.sh, or run by itself in the project's folder. Creates .venv and installs the
# pinned packages. Installs again only after requirements.txt or pyproject.toml changed; otherwise it needs no network.

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

stamp=.venv/installed.txt
if ! cat requirements.txt pyproject.toml | cmp --silent - "$stamp"; then
  echo "installing the packages of requirements.txt into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
  # Build isolation would download another setuptools than the one just installed.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
  cat requirements.txt pyproject.toml > "$stamp"
fi
