#!/bin/sh
# Compares random inputs with the real kustomize: run.sh [INPUTS [FIRST_SEED]]. What differs is shrunk and shown.
set -eu
cd "$(dirname "$0")"
KUSTOMIZE_COMPARE=${1:-20000} KUSTOMIZE_COMPARE_FROM=${2:-1} \
    cargo test -p roadstead-kustomize --test compare -- --nocapture
