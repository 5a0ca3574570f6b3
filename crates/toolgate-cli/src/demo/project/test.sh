#!/bin/sh
# Checks invoice.sh against orders whose totals are known.
failed=0
check() {
    got=$(./invoice.sh "orders/$1.csv")
    if [ "$got" = "$2" ]; then
        echo "ok    $1: $got"
    else
        echo "FAIL  $1: expected $2, got $got"
        failed=1
    fi
}
check single 1200
check several 5450
check none 0
exit $failed
