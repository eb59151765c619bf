#!/usr/bin/env bash
# Builds everything with warnings as errors and runs all tests. Arguments go to ctest: ./test.sh -R layers
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/packages.sh

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  echo "usage: ./test.sh [CTEST ARGUMENT...]   for example ./test.sh -R layers, ./test.sh -LE slow"
  exit 0
fi
gau_install "${gau_build_packages[@]}" "${gau_test_packages[@]}"
cmake --preset ci -DGAU_BUILD_TESTS=ON
cmake --build build --parallel "$(nproc)"

status=0
ctest --test-dir build --output-on-failure -j2 "$@" </dev/null 2>&1 | tee build/ctest.log || status=$?
# ctest says times after its verdict; the verdict is what a reader, or a script, looks for at the end.
grep -E 'tests passed|No tests were found' build/ctest.log | tail -n 1 || true
exit "$status"
