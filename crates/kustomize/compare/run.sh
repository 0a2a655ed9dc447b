#!/bin/sh
# Compares random inputs with the real kustomize: run.sh [INPUTS [FIRST_SEED]]. What differs is shrunk and shown.
# The real one is built once from its Go module into the cache.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/bin
if [ ! -x "$bin/kustomize-oracle" ]; then
    mkdir -p "$bin"
    (cd "$here/oracle" && GOTOOLCHAIN=local go build -o "$bin/kustomize-oracle" .)
fi
cd "$here"
KUSTOMIZE_COMPARE=${1:-20000} KUSTOMIZE_COMPARE_FROM=${2:-1} \
    cargo test -p roadstead-kustomize --test compare -- --nocapture
