#!/bin/sh
# Builds Flux's own kustomize-controller from its Go module, once for each version, and prints the folder that holds it:
# bin/kustomize-controller, and crds.yaml with the definitions of its kind and of the sources that it reads.
#
# The first time takes minutes.
set -eu

# Those of the flux command that tests/clients installs: the two share most of their modules.
kustomize_controller=v1.9.5
source_controller=v1.9.5

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../build-once.sh"
build_once flux bin/kustomize-controller "$here"

module() {
	(cd "$tmp" && go mod download -json "github.com/fluxcd/$1@$2" 9>&-) | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p'
}

echo "flux: building kustomize-controller $kustomize_controller" >&2
cp -R "$(module kustomize-controller "$kustomize_controller")" "$tmp/source"
chmod -R u+w "$tmp/source"
mkdir -p "$tmp/whole/bin"
# Its API is replaced by a folder of its repository, which is a module of its own and not part of this one: the published one is the same.
(cd "$tmp/source" && go mod edit -dropreplace github.com/fluxcd/kustomize-controller/api) >&2 9>&-
(cd "$tmp/source" && go build -ldflags "-s -w" -o "$tmp/whole/bin/kustomize-controller" .) >&2 9>&-
sources=$(module source-controller "$source_controller")/config/crd/bases
cat "$tmp"/source/config/crd/bases/*.yaml "$sources"/*.yaml >"$tmp/whole/crds.yaml"

built
