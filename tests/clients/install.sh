#!/bin/sh
# Installs the foreign parts that tests use with the hub, once for each of their versions, and prints the folder that holds
# them: bin/flux, bin/sops, bin/age-keygen, bin/cosign and bin/registry, an OCI registry (built from their Go modules), python/bin/python with the package
# `kubernetes`, stores/bin/python with `boto3` and `azure-storage-blob`, stores/bin/moto_server, an S3 server, azurite, a server of Azure Blob Storage (azurite/node_modules), and Cluster API's
# definition of its kind Cluster (cluster-api/clusters.yaml).
#
# The folder is the only line on stdout; progress goes to stderr. The first time takes minutes.
set -eu

flux=v2.9.5
kubernetes=37.0.2
cluster_api=v1.14.2
sops=v3.13.3
age=v1.3.1
registry=v3.0.0
cosign=v3.1.3
moto=5.2.5
azure_storage=12.31.1
azurite=3.35.0

here=$(cd "$(dirname "$0")" && pwd)
cache=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/clients
key=$({ uname -m; cat "$here/install.sh"; } | sha256sum | cut -c1-16)
out=$cache/$key

done_already() { [ -x "$out/bin/flux" ] && [ -x "$out/bin/sops" ] && [ -x "$out/bin/registry" ] && [ -x "$out/bin/cosign" ] && [ -x "$out/python/bin/python" ] && [ -x "$out/stores/bin/moto_server" ]; }
if done_already; then
	printf '%s\n' "$out"
	exit 0
fi

mkdir -p "$cache"
# Two callers must not install at once. The lock goes with the shell that holds it, also by kill -9.
exec 9>"$cache/.lock"
if ! flock -n 9; then
	echo "clients: another installation is under way; waiting for it" >&2
	flock 9
fi
if done_already; then
	printf '%s\n' "$out"
	exit 0
fi
rm -rf "$out" "$cache"/.build-* # of installations that were killed: the lock says that there is no other
begin=$(date +%s)

# Python's environments hold their own path: this one is made where it stays.
mkdir -p "$out/bin"
echo "clients: installing Python's kubernetes $kubernetes" >&2
python3 -m venv "$out/python" >&2 9>&-
"$out/python/bin/python" -m pip install --quiet --disable-pip-version-check "kubernetes==$kubernetes" >&2 9>&-

echo "clients: installing moto $moto and azurite $azurite" >&2
# An environment of its own: some of what these packages want is not what the package above wants.
python3 -m venv "$out/stores" >&2 9>&-
"$out/stores/bin/python" -m pip install --quiet --disable-pip-version-check "moto[server]==$moto" "azure-storage-blob==$azure_storage" >&2 9>&-
npm install --prefix "$out/azurite" --no-save --no-audit --no-fund --loglevel=error "azurite@$azurite" >&2 9>&-

echo "clients: building flux $flux" >&2
tmp=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-trimpath -buildvcs=false -mod=mod"
unset GOWORK GOOS GOARCH || true
module=$(cd "$tmp" && go mod download -json "github.com/fluxcd/flux2/v2@$flux" 9>&- | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
cp -R "$module" "$tmp/flux"
chmod -R u+w "$tmp/flux"
# The command embeds the manifests that it installs; its module does not have them, and these tests install nothing.
mkdir -p "$tmp/flux/cmd/flux/manifests"
echo "# none" >"$tmp/flux/cmd/flux/manifests/none.yaml"
(cd "$tmp/flux" && go build -ldflags "-s -w -X main.VERSION=${flux#v}" -o "$tmp/flux-command" ./cmd/flux) >&2 9>&-
module=$(cd "$tmp" && go mod download -json "sigs.k8s.io/cluster-api@$cluster_api" 9>&- | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
mkdir -p "$out/cluster-api"
cp "$module/core/config/crd/bases/cluster.x-k8s.io_clusters.yaml" "$out/cluster-api/clusters.yaml"
chmod u+w "$out/cluster-api/clusters.yaml"
echo "clients: building sops $sops" >&2
(cd "$tmp" && GOBIN="$tmp/bin" go install -ldflags "-s -w" "github.com/getsops/sops/v3/cmd/sops@$sops") >&2 9>&-
(cd "$tmp" && GOBIN="$tmp/bin" go install "filippo.io/age/cmd/age-keygen@$age") >&2 9>&-
echo "clients: building the registry $registry" >&2
(cd "$tmp" && GOBIN="$tmp/bin" go install -ldflags "-s -w" "github.com/distribution/distribution/v3/cmd/registry@$registry") >&2 9>&-
echo "clients: building cosign $cosign" >&2
(cd "$tmp" && GOBIN="$tmp/bin" go install -ldflags "-s -w" "github.com/sigstore/cosign/v3/cmd/cosign@$cosign") >&2 9>&-
mv "$tmp/bin/sops" "$tmp/bin/age-keygen" "$tmp/bin/registry" "$tmp/bin/cosign" "$out/bin/"
# Moved last: a folder with it is whole.
mv "$tmp/flux-command" "$out/bin/flux"
echo "clients: installed in $(($(date +%s) - begin)) s" >&2
printf '%s\n' "$out"
