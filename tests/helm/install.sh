#!/bin/sh
# Builds the real helm from its Go module, once for each version, and prints the folder that holds it: bin/helm.
#
# The folder is the only line on stdout; progress goes to stderr. The first time takes minutes.
set -eu

# The one that the flux command of tests/clients is made with: the two share their modules.
helm=v4.2.2

here=$(cd "$(dirname "$0")" && pwd)
cache=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/helm
key=$({ uname -m; cat "$here/install.sh"; } | sha256sum | cut -c1-16)
out=$cache/$key

if [ -x "$out/bin/helm" ]; then
	printf '%s\n' "$out"
	exit 0
fi

mkdir -p "$cache"
# Two callers must not build at once. The lock goes with the shell that holds it, also by kill -9.
exec 9>"$cache/.lock"
if ! flock -n 9; then
	echo "helm: another build is under way; waiting for it" >&2
	flock 9
fi
if [ -x "$out/bin/helm" ]; then
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

echo "helm: building helm $helm" >&2
(cd "$tmp" && GOBIN="$tmp/whole/bin" go install -ldflags "-s -w" "helm.sh/helm/v4/cmd/helm@$helm") >&2 9>&-

# Renamed when all is there: a folder with the key's name is whole.
rm -rf "$out"
mv -T "$tmp/whole" "$out"
echo "helm: built in $(($(date +%s) - begin)) s" >&2
printf '%s\n' "$out"
