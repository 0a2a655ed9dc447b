#!/bin/sh
# Builds the real kubelogin (`kubectl oidc-login`) from its Go module, once for each version, and prints the folder that holds it:
# bin/kubelogin.
#
# The first time takes minutes.
set -eu

kubelogin=v1.34.2
# The module's own sum: not every proxy passes on what the checksum database says of it. Its dependencies are checked as usual.
sum=h1:9ocWssGjTuP+krpbbJt1GM82nk/33IWFaJqfRwe8Lgw=

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../build-once.sh"
build_once kubelogin bin/kubelogin "$here"

echo "kubelogin: building kubelogin $kubelogin" >&2
export GONOSUMDB=github.com/int128/kubelogin
cd "$tmp"
said=$(go mod download -json "github.com/int128/kubelogin@$kubelogin" 9>&-)
of() { printf '%s\n' "$said" | sed -n "s/^.*\"$1\": \"\(.*\)\".*\$/\1/p"; }
if [ "$(of Sum)" != "$sum" ]; then
	echo "kubelogin: the module has the sum $(of Sum), not $sum" >&2
	exit 1
fi
# Of its own folder, so that it is built of the versions that it names.
cp -R "$(of Dir)" "$tmp/source"
chmod -R u+w "$tmp/source"
(cd "$tmp/source" && GOFLAGS="-trimpath -buildvcs=false" go build -ldflags "-s -w" -o "$tmp/whole/bin/kubelogin" .) >&2 9>&-

built
