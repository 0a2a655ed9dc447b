# Sourced by scripts that build a foreign program from its Go modules, once for each state of FOLDER/install.sh (tests/flux, tests/helm):
#
#   build_once NAME PROGRAM FOLDER   prints the folder and ends the script where it is built already, also by another caller meanwhile;
#                                    otherwise sets $tmp, a folder in which $tmp/whole is to be made, with PROGRAM in it
#   built                            gives that folder its name, and prints it
#
# The folder is the only line on stdout; progress goes to stderr.

build_once() {
	name=$1 program=$2 cache=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/$1
	out=$cache/$({ uname -m; cat "$3/install.sh" "$3/../build-once.sh"; } | sha256sum | cut -c1-16)
	if [ -x "$out/$program" ]; then
		printf '%s\n' "$out"
		exit 0
	fi
	mkdir -p "$cache"
	# Two callers must not build at once. The lock goes with the shell that holds it, also by kill -9.
	exec 9>"$cache/.lock"
	if ! flock -n 9; then
		echo "$name: another build is under way; waiting for it" >&2
		flock 9
	fi
	if [ -x "$out/$program" ]; then
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
}

built() {
	# Renamed when all is there: a folder with this name is whole.
	rm -rf "$out"
	mv -T "$tmp/whole" "$out"
	echo "$name: built in $(($(date +%s) - begin)) s" >&2
	printf '%s\n' "$out"
}
