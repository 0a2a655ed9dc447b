#!/bin/sh
# Builds the real helm from its Go module, once for each version, and prints the folder that holds it: bin/helm.
#
# The first time takes minutes.
set -eu

# The one that the flux command of tests/clients is made with: the two share their modules.
helm=v4.2.2

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../build-once.sh"
build_once helm bin/helm "$here"

echo "helm: building helm $helm" >&2
(cd "$tmp" && GOBIN="$tmp/whole/bin" go install -ldflags "-s -w" "helm.sh/helm/v4/cmd/helm@$helm") >&2 9>&-

built
