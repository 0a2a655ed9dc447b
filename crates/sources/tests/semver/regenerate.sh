#!/bin/sh
# Writes `rows.txt`: which versions are in a range, by the library that Flux reads ranges with. Needs Go and its module proxy.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$here/rows.go" main.go
go mod init rows
go get github.com/Masterminds/semver/v3@v3.5.0
go run . >"$here/rows.txt"
