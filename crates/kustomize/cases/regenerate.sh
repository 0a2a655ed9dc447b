#!/bin/sh
# Makes the expected output of every case with the real kustomize: expected.yaml, or expected_error.txt where it refuses.
# The binary is built once from its Go module into the cache.
set -eu
version=v5.8.1
here=$(cd "$(dirname "$0")" && pwd)
bin=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/bin
if [ ! -x "$bin/kustomize" ]; then
    mkdir -p "$bin"
    (cd / && GOTOOLCHAIN=local GOBIN="$bin" go install "sigs.k8s.io/kustomize/kustomize/v5@$version")
fi
for case in "$here"/*/; do
    path=.
    [ ! -f "$case/path" ] || path=$(cat "$case/path")
    rm -f "$case/expected.yaml" "$case/expected_error.txt"
    if output=$(cd "$case/input" && "$bin/kustomize" build "$path" 2>"$case/expected_error.txt" && printf x); then
        printf %s "${output%x}" >"$case/expected.yaml"
        rm "$case/expected_error.txt"
    else
        # Paths of the machine that made the case are nobody's business.
        sed -i "s|$case||g; s|${case%/}||g; /^goroutine /,\$d" "$case/expected_error.txt"
    fi
done
