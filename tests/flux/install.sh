#!/bin/sh
# Builds Flux's own kustomize-controller and source-controller from their Go modules, once for each version, and prints the
# folder that holds them: bin/kustomize-controller, bin/source-controller, and crds.yaml with the definitions of their kinds.
#
# The first time takes minutes.
set -eu

# Those of the flux command that tests/clients installs: the two share most of their modules.
kustomize_controller=v1.9.5
source_controller=v1.9.5

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../build-once.sh"
build_once flux bin/source-controller "$here"

module() {
	(cd "$tmp" && go mod download -json "github.com/fluxcd/$1@$2" 9>&-) | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p'
}

# Its API is replaced by a folder of its repository, which is a module of its own and not part of this one: the published one is the same.
# What follows the name and the version are further edits of its go.mod.
controller() {
	name_of=$1 version_of=$2
	shift 2
	echo "flux: building $name_of $version_of" >&2
	cp -R "$(module "$name_of" "$version_of")" "$tmp/$name_of"
	chmod -R u+w "$tmp/$name_of"
	(cd "$tmp/$name_of" && go mod edit -dropreplace "github.com/fluxcd/$name_of/api" "$@") >&2 9>&-
	(cd "$tmp/$name_of" && go build -ldflags "-s -w" -o "$tmp/whole/bin/$name_of" .) >&2 9>&-
}

mkdir -p "$tmp/whole/bin"
controller kustomize-controller "$kustomize_controller"
# Module proxies do not have the one that it names.
controller source-controller "$source_controller" -require=github.com/fluxcd/pkg/artifact@v0.18.1
cat "$tmp"/*-controller/config/crd/bases/*.yaml >"$tmp/whole/crds.yaml"

built
