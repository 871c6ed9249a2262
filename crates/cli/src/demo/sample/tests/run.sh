#!/bin/sh
# Runs every test file in a fresh process; says which failed.
cd "$(dirname "$0")/.." || exit 1
failed=0
for test in tests/test_*.sh; do
    [ -e "$test" ] || continue
    if sh -eu "$test"; then
        echo "ok      $test"
    else
        echo "FAILED  $test"
        failed=1
    fi
done
exit $failed
