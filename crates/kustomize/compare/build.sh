#!/bin/sh
# Builds the real kustomize as a program that answers many inputs, where it is not in the cache yet, and prints its path.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/bin
sum=$(cat "$here"/oracle/* | sha256sum | cut -c1-16)
program=$bin/kustomize-oracle-$sum
if [ ! -x "$program" ]; then
    mkdir -p "$bin"
    if ! command -v go >/dev/null; then
        echo "Go is missing, with which the real kustomize is built" >&2
        exit 1
    fi
    # Whoever else builds it at the same time makes the same file.
    (cd "$here/oracle" && GOTOOLCHAIN=local go build -o "$program.$$" . && mv "$program.$$" "$program") >&2
fi
echo "$program"
