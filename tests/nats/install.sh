#!/bin/sh
# Builds the real nats-server from its Go module, once for each version, and prints the folder that holds it: bin/nats-server.
#
# The first time takes minutes.
set -eu

nats=v2.15.3

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../build-once.sh"
build_once nats bin/nats-server "$here"

echo "nats: building nats-server $nats" >&2
(cd "$tmp" && GOBIN="$tmp/whole/bin" go install -ldflags "-s -w" "github.com/nats-io/nats-server/v2@$nats") >&2 9>&-

built
