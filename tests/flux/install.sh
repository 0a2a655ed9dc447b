#!/bin/sh
# Builds Flux's own kustomize-controller from its Go module, once for each version, and prints the folder that holds it:
# bin/kustomize-controller, and crds.yaml with the definitions of its kind and of the sources that it reads.
#
# The folder is the only line on stdout; progress goes to stderr. The first time takes minutes.
set -eu

# Those of the flux command that tests/clients installs: the two share most of their modules.
kustomize_controller=v1.9.5
source_controller=v1.9.5

here=$(cd "$(dirname "$0")" && pwd)
cache=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/flux
key=$({ uname -m; cat "$here/install.sh"; } | sha256sum | cut -c1-16)
out=$cache/$key

if [ -x "$out/bin/kustomize-controller" ]; then
	printf '%s\n' "$out"
	exit 0
fi

mkdir -p "$cache"
# Two callers must not build at once. The lock goes with the shell that holds it, also by kill -9.
exec 9>"$cache/.lock"
if ! flock -n 9; then
	echo "flux: another build is under way; waiting for it" >&2
	flock 9
fi
if [ -x "$out/bin/kustomize-controller" ]; then
	printf '%s\n' "$out"
	exit 0
fi

rm -rf "$cache"/.build-* # of builds that were killed: the lock says that there is no other
tmp=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
begin=$(date +%s)
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-trimpath -buildvcs=false -mod=mod"
unset GOWORK GOOS GOARCH || true

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

# Renamed when all is there: a folder with the key's name is whole.
rm -rf "$out"
mv -T "$tmp/whole" "$out"
echo "flux: built in $(($(date +%s) - begin)) s" >&2
printf '%s\n' "$out"
