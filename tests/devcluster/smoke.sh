#!/bin/sh
# Does a devcluster do what tests lean on? Brings clusters up in a folder of its own, rolls out a Deployment, runs Jobs,
# breaks and repairs what tests break, takes them down, and looks for anything left behind. Takes about a minute once
# the binaries are built.
set -eu

bin=$("$(dirname "$0")/build.sh")
state=$(mktemp -d)
dev() {
	verb=$1
	shift
	"$bin/devcluster" "$verb" --state-dir "$state" "$@"
}
cleanup() {
	dev down --all || true
	rm -rf "$state"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
say() { echo "smoke: $*" >&2; }
die() {
	say "FAILED: $*"
	exit 1
}

say "up"
kubeconfig=$(dev up smoke) || die "up"
[ "$kubeconfig" = "$state/smoke/kubeconfig" ] || die "up printed «$kubeconfig»"
[ "$(stat -c %a "$state/smoke")" = 700 ] || die "others can read the cluster's folder"
export KUBECONFIG="$kubeconfig"
k() { "$bin/kubectl" "$@"; }
k version >&2
k get nodes >&2

say "up again changes nothing"
before=$(cat "$state/smoke/cluster.json")
[ "$(dev up smoke)" = "$kubeconfig" ] || die "up again"
[ "$(cat "$state/smoke/cluster.json")" = "$before" ] || die "up again started something"

say "only loopback is listened on"
for pid in $(sed -n '/"pids"/,/}/s/.*: \([0-9]*\),*$/\1/p' "$state/smoke/cluster.json"); do
	for inode in $(ls -l "/proc/$pid/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]/\1/p'); do
		# State 0A is LISTEN; 0100007F is 127.0.0.1. Nothing of ours listens on IPv6.
		awk -v i="$inode" '$4 == "0A" && $10 == i && $2 !~ /^0100007F:/ { print; bad = 1 } END { exit bad }' \
			/proc/net/tcp /proc/net/tcp6 || die "process $pid listens beyond loopback"
	done
done

say "a Deployment rolls out"
k create deployment web --image=web --replicas=2 >&2
k rollout status deployment/web --timeout=30s >&2 || die "rollout"
say "another waits for its pods to get ready"
k create deployment slow --image=slow --dry-run=client -o yaml |
	sed 's|^    metadata:$|&\n      annotations: {devcluster.roadstead.dev/ready-after: 4s}|' |
	k apply -f - >&2
k rollout status deployment/slow --timeout=1s >&2 2>&1 && die "slow was ready at once"
k rollout status deployment/slow --timeout=30s >&2 || die "slow"
say "and one whose pods never get ready does not"
k create deployment stuck --image=stuck --dry-run=client -o yaml |
	sed 's|^    metadata:$|&\n      annotations: {devcluster.roadstead.dev/never-ready: ImagePullBackOff}|' |
	k apply -f - >&2
k rollout status deployment/stuck --timeout=3s >&2 2>&1 && die "stuck rolled out"
k get pods -o wide >&2

say "Jobs complete and fail"
k create job good --image=job -- true >&2
k create job bad --image=job --dry-run=client -o yaml -- false |
	sed 's|^spec:$|&\n  backoffLimit: 0|; s|^    metadata:.*|    metadata:\n      annotations: {devcluster.roadstead.dev/fail: "true"}|' |
	k apply -f - >&2
k run once --image=job --restart=Never --annotations=devcluster.roadstead.dev/complete-after=1s >&2
k wait --for=jsonpath='{.status.phase}'=Succeeded pod/once --timeout=30s >&2 || die "once"
k wait --for=condition=complete job/good --timeout=30s >&2 || die "good"
k wait --for=condition=failed job/bad --timeout=30s >&2 || die "bad"

say "pods, a namespace with things in it, and RBAC go as they should"
k delete deployment stuck --wait --timeout=30s >&2
k create namespace gone >&2
k -n gone create deployment web --image=web >&2
k -n gone rollout status deployment/web --timeout=30s >&2
k delete namespace gone --timeout=60s >&2 || die "deleting a namespace"
[ "$(k auth can-i list secrets --as=system:serviceaccount:default:default || true)" = no ] || die "RBAC is not on"
token=$(k create token default) || die "no token for a service account"
[ "$(k auth whoami --token="$token" -o jsonpath='{.status.userInfo.username}' --kubeconfig=/dev/null \
	--server="$(k config view -o jsonpath='{.clusters[0].cluster.server}')" \
	--certificate-authority="$state/smoke/pki/ca.crt")" = system:serviceaccount:default:default ] || die "the token"

say "pause and resume"
dev pause smoke
k get namespaces --request-timeout=1s >/dev/null 2>&1 && die "a paused apiserver answered"
dev list | grep -q paused || die "list does not say paused"
dev resume smoke
k get namespaces --request-timeout=20s >/dev/null || die "resume"

say "kill -9 of etcd and the apiserver; up repairs, over the same data"
for name in etcd kube-apiserver; do
	kill -9 "$(sed -n "s/.*\"$name\": \([0-9]*\),*$/\1/p" "$state/smoke/cluster.json")"
done
sleep 0.2
dev list >&2
[ "$(dev up smoke)" = "$kubeconfig" ] || die "up after the kill"
k rollout status deployment/web --timeout=30s >&2 || die "the data is lost"
k create deployment after --image=web --replicas=2 >&2
k rollout status deployment/after --timeout=30s >&2 || die "rollout after the kill"

say "two more at once, one without nodes"
dev up second >/dev/null &
one=$!
dev up third --no-nodes >/dev/null &
two=$!
wait $one || die "second"
wait $two || die "third"
dev list >&2

say "down"
dev down second
dev down second || die "down of what is down"
dev down --all
left=$(ls -A "$state")
[ -z "$left" ] || die "left behind: $left"
for dir in /proc/[0-9]*; do
	if tr '\0' '\n' 2>/dev/null <"$dir/environ" | grep -q "^DEVCLUSTER_STATE=$state/"; then
		die "a process is left: $(tr '\0' ' ' <"$dir/cmdline")"
	fi
done
say "passed"
