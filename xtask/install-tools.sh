#!/bin/sh
# Makes sure that a machine has what the other commands need, before there is a cargo that could run them.
#
# As root on Debian and its like it installs what is missing. Elsewhere it says which command does, and fails. Rust and Go
# come by their own installers, in the versions named below: distributions carry older ones.
set -eu

rust_wanted=1.95
go_wanted=1.26
node_wanted=20.19

have() { command -v "$1" >/dev/null 2>&1; }

# Whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

have_postgres() {
	[ -n "${ROADSTEAD_POSTGRES_BIN:-}" ] || have pg_config || have postgres ||
		ls /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres >/dev/null 2>&1
}

# For the browser's tests.
have_chromium() {
	[ -n "${ROADSTEAD_TEST_CHROMIUM:-}" ] || have chromium || have chromium-browser || have google-chrome
}

have_faketime() {
	for library in /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib*/faketime/libfaketimeMT.so.1; do
		[ ! -e "$library" ] || return 0
	done
	return 1
}

have_sshd() { [ -x /usr/sbin/sshd ] || have sshd; }

packages=
need() { packages="$packages $1"; }
have cc || need gcc
# The C library's headers: gcc alone does not bring them.
[ -e /usr/include/stdio.h ] || [ "$(uname -s)" != Linux ] || need libc6-dev
have git || need git
have curl || need curl
have gpg || need gnupg
have flock || need util-linux
python3 -c "import venv, ensurepip" >/dev/null 2>&1 || need python3-venv
have_postgres || need postgresql
have psql || need postgresql-client
have ssh-keygen || need openssh-client
# For tests of Git over SSH, which run a server of their own as they are.
have_sshd || need openssh-server
# For tests of programs whose clock is off.
have_faketime || need libfaketime
have_chromium || need chromium
have_chromium || need fonts-dejavu-core

if [ -n "$packages" ]; then
	if [ "$(id -u)" -eq 0 ] && have apt-get; then
		echo "installing:$packages" >&2
		log=$(mktemp)
		trap 'rm -f "$log"' EXIT
		# The package would begin to serve on all addresses of this machine: this file keeps it from that.
		have_sshd || { mkdir -p /etc/ssh && : >/etc/ssh/sshd_not_to_be_run; }
		# shellcheck disable=SC2086 # a list of words
		if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } \
			>"$log" 2>&1 </dev/null; then
			tail -n 30 "$log" >&2
			exit 1
		fi
	else
		echo "Missing programs. On Debian and Ubuntu these packages bring them:" >&2
		echo "    sudo apt-get update && sudo apt-get install$packages" >&2
		echo "On Fedora: gcc glibc-devel git curl gnupg2 openssh-clients openssh-server util-linux python3 postgresql-server postgresql libfaketime chromium" >&2
		exit 1
	fi
fi

# For tests of metrics. Only its programs, unpacked: the package itself would begin to serve on all addresses of this machine.
prometheus=${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/prometheus
if [ -z "${ROADSTEAD_TEST_PROMETHEUS:-}" ] && ! { have prometheus && have promtool; } && [ ! -x "$prometheus/usr/bin/promtool" ]; then
	if have apt-get && have dpkg-deb; then
		echo "unpacking: prometheus" >&2
		fetched=$(mktemp -d)
		(
			cd "$fetched"
			apt-get download prometheus || { [ "$(id -u)" -eq 0 ] && apt-get update && apt-get download prometheus; }
		) >"$fetched/log" 2>&1 </dev/null || { tail -n 30 "$fetched/log" >&2; exit 1; }
		mkdir -p "${prometheus%/*}" && dpkg-deb -x "$fetched"/prometheus_*.deb "$fetched/unpacked"
		# Whole, or not there.
		rm -rf "$prometheus" && mv "$fetched/unpacked" "$prometheus" && rm -rf "$fetched"
	else
		echo "Prometheus is needed, for tests of metrics: unpack its own archive, and put it into PATH, or name its folder by" >&2
		echo "ROADSTEAD_TEST_PROMETHEUS." >&2
		exit 1
	fi
fi

if ! have cargo || ! at_least "$(cargo --version | cut -d' ' -f2)" "$rust_wanted"; then
	echo "Rust $rust_wanted or newer is needed: rustup installs it, and 'rustup update stable' renews an old one." >&2
	exit 1
fi

# For the development clusters; who brings their own needs none.
if [ -z "${ROADSTEAD_WITHOUT_GO:-}" ] && { ! have go || ! at_least "$(go env GOVERSION | sed 's/^go//')" "$go_wanted"; }; then
	echo "Go $go_wanted or newer is needed, to build Kubernetes for tests and demo: unpack Go's own archive, and" >&2
	echo "put its bin folder into PATH." >&2
	exit 1
fi

if ! have npm || ! have node || ! at_least "$(node --version | sed 's/^v//')" "$node_wanted"; then
	echo "Node.js $node_wanted or newer with npm is needed, to build the dashboard: unpack Node's own archive, and put its bin" >&2
	echo "folder into PATH." >&2
	exit 1
fi
