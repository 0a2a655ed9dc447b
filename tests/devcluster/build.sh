#!/bin/sh
# Builds devcluster and kwok, once for each state of their sources, and prints the folder that holds them.
#
#   bin=$(tests/devcluster/build.sh) && "$bin/devcluster" up demo
#
# The folder is the only line on stdout; progress goes to stderr. The first build takes minutes and 3 GB of Go's build
# cache, as it compiles all of Kubernetes; where the binaries are there already, nothing is done.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/devcluster

# What the binaries are made from names their folder. Tests are not part of them; this script is, for its flags.
key=$(
	cd "$here"
	{
		uname -m
		for file in build.sh go.mod go.sum *.go kwok/go.mod kwok/go.sum kwok/*.yaml; do
			case $file in *_test.go) continue ;; esac
			sha256sum "$file"
		done
	} | sha256sum | cut -c1-16
)
out=$cache/$key

if [ -x "$out/devcluster" ]; then
	printf '%s\n' "$out"
	exit 0
fi

if ! command -v go >/dev/null 2>&1; then
	echo "build.sh: building Kubernetes needs Go 1.26 or newer, and there is no go in PATH." >&2
	echo "          Debian: apt-get install golang-go, where «apt-cache policy golang-go» offers that version" >&2
	echo "          (also from backports); elsewhere unpack Go's own archive and put its bin folder into PATH." >&2
	exit 1
fi

mkdir -p "$cache"
# Two callers (test binaries in parallel) must not build the same thing at once. The lock goes with the shell that holds
# it, also by kill -9.
exec 9>"$cache/.lock"
if ! flock -n 9; then
	echo "devcluster: another build is under way; waiting for it" >&2
	flock 9
fi
if [ -x "$out/devcluster" ]; then
	printf '%s\n' "$out"
	exit 0
fi

export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-trimpath -buildvcs=false -mod=readonly"
unset GOWORK GOOS GOARCH || true

# A compiler of one of the large packages takes over 1 GB: fewer of them than cores where memory is short.
jobs=$(nproc)
memory=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo)
[ "$memory" -ge "$jobs" ] || jobs=$memory
[ "$jobs" -ge 1 ] || jobs=1

# Kubernetes reads its version from variables that the linker sets, and answers it to every client.
version=$(sed -n 's|^.*k8s.io/kubernetes \(v[0-9.]*\).*$|\1|p' "$here/go.mod" | head -n 1)
kwok_version=$(sed -n 's|^.*sigs.k8s.io/kwok \(v[0-9.]*\).*$|\1|p' "$here/kwok/go.mod" | head -n 1)
major=$(echo "$version" | cut -d. -f1 | tr -d v)
minor=$(echo "$version" | cut -d. -f2)
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
	flags="$flags -X $package.gitTreeState=clean -X $package.gitCommit=devcluster"
done

rm -rf "$cache"/.build-* # of builds that were killed: the lock says that there is no other
tmp=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

begin=$(date +%s)
echo "devcluster: building Kubernetes $version and kwok $kwok_version with $jobs jobs; the first time takes minutes" >&2
# fd 9 is closed for the children: a compiler that outlives this script must not keep the lock.
(cd "$here" && go build -p "$jobs" -ldflags "$flags" -o "$tmp/devcluster" .) >&2 9>&-
(cd "$here/kwok" && go build -p "$jobs" -ldflags "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$kwok_version" \
	-o "$tmp/kwok" sigs.k8s.io/kwok/cmd/kwok) >&2 9>&-
cp "$here/kwok/stages.yaml" "$tmp/stages.yaml"
ln -s devcluster "$tmp/kubectl"
chmod 755 "$tmp"

# Renamed when all is there: a folder with the key's name is whole.
rm -rf "$out"
mv -T "$tmp" "$out"
echo "devcluster: built in $(($(date +%s) - begin)) s" >&2
printf '%s\n' "$out"
