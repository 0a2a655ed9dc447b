#!/bin/sh
# Makes kustomize.txt: what the real kustomize asks Git for by each line of urls.txt, as the URL, repository, reference, submodules and path
# with tabs between, or the URL and `local` where it takes it for a path. Git is a stub that notes what it was called with.
set -eu
kustomize=${KUSTOMIZE:-${ROADSTEAD_CACHE:-$HOME/.cache/roadstead}/bin/kustomize}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/empty"
cat >"$work/bin/git" <<'STUB'
#!/bin/sh
case $1 in
fetch) printf "%s\t%s" "$3" "$4" >"$STUB_LOG" ;;
submodule) echo submodules >"$STUB_LOG.submodules" ;;
esac
STUB
chmod +x "$work/bin/git"
while IFS= read -r url; do
    export STUB_LOG="$work/log"
    rm -f "$work/log" "$work/log.submodules"
    error=$(cd "$work/empty" && PATH="$work/bin:$PATH" TMPDIR="$work" "$kustomize" build "$url" </dev/null 2>&1 || true)
    if [ ! -f "$work/log" ]; then
        printf "%s\tlocal\n" "$url"
        continue
    fi
    # Nothing is in the clone: the error says where kustomize looked.
    path=$(printf %s "$error" | sed -n "s|.*$work/kustomize-[0-9]*\(/[^']*\)\{0,1\}'.*|\1|p" | tail -n 1)
    submodules=no
    [ ! -f "$work/log.submodules" ] || submodules=yes
    printf "%s\t%s\t%s\t%s\n" "$url" "$(cat "$work/log")" "$submodules" "${path:-/}"
done <"$here/urls.txt" >"$here/kustomize.txt"
