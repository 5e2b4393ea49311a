#!/usr/bin/env bash
# Writes requirements.lock: the versions of requirements.txt with the hashes of all files that the package index has of
# them, so that one file serves every platform. Then resolves requirements.txt for each platform below: no package may
# be missing, and every package but ecos needs a wheel. torch and what only its builds for CUDA need are left out,
# because indexes have different builds of the same version. Needs uv (pip install uv) and a network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export MACOSX_DEPLOYMENT_TARGET=14.0  # the oldest that torch has a wheel for

grep --invert-match '^torch==' requirements.txt \
  | uv pip compile --quiet --no-deps --generate-hashes --no-annotate --no-header --output-file requirements.lock -

names() {
  sed --quiet 's/^\([A-Za-z0-9_.-]*\)==.*/\L\1/p' "$1" | sort
}

for platform in x86_64-manylinux_2_28 aarch64-apple-darwin; do
  for python in 3.11 3.12 3.13; do
    resolved=$(uv pip compile --quiet --only-binary :all: --no-binary ecos --no-annotate --no-header \
      --python-platform "$platform" --python-version "$python" requirements.txt)
    missing=$(comm -13 <(names requirements.lock) <(names <(echo "$resolved")) \
      | grep --invert-match --extended-regexp '^(torch|triton|nvidia-.*|cuda-.*)$' || true)
    if [[ -n "$missing" ]]; then
      echo "error: requirements.txt lacks packages that $platform, Python $python needs: ${missing//$'\n'/, }" >&2
      exit 1
    fi
    echo "$platform, Python $python: complete"
  done
done
