#!/bin/sh
# Writes signed.json again: see main.go. The registry and cosign, which says of each artifact whether it would take it, come from
# tests/clients/install.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
clients=$(sh "$here/../../../../../tests/clients/install.sh")
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
port=5878
cat >"$work/registry.yml" <<END
version: 0.1
storage:
  filesystem: {rootdirectory: $work/data}
http:
  addr: 127.0.0.1:$port
END
OTEL_TRACES_EXPORTER=none "$clients/bin/registry" serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
server=$!
until curl -fs "http://127.0.0.1:$port/v2/" >/dev/null; do sleep 0.2; done
cd "$here"
go run . "127.0.0.1:$port" "$clients/bin/cosign" "$here/signed.json"
