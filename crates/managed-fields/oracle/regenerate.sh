#!/bin/sh
# Makes the cases of tests/replay.rs again: what k8s.io/apimachinery's library makes of random sequences of writes.
set -eu
cd "$(dirname "$0")"
go build -o "${TMPDIR:-/tmp}/managed-fields-oracle" .
{
    "${TMPDIR:-/tmp}/managed-fields-oracle" -cases 220 -seed 1 -steps 8
    # In these there come to be so many managers that the oldest are folded together.
    for seed in 10005 10007 10023; do
        "${TMPDIR:-/tmp}/managed-fields-oracle" -cases 1 -seed $seed -steps 50
    done
} > ../tests/cases.jsonl
