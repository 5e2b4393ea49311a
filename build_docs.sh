#!/usr/bin/env bash
# Builds the site of docs/ into site/: ./build_docs.sh, or ./build_docs.sh serve to read it while you write.
# Nothing needs the network, except the first call.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/docs_environment.sh

if [[ "${1:-}" == serve ]]; then
  .venv-docs/bin/python -m mkdocs serve "${@:2}"
else
  .venv-docs/bin/python -m mkdocs build --strict "$@"
fi
