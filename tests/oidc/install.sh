#!/bin/sh
# Installs oidc-provider, a certified OpenID provider, from npm, once for each version, and prints the folder that holds it: node_modules.
# provider.mjs runs it.
set -eu

oidc_provider=9.13.3

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../build-once.sh"
build_once oidc node_modules/oidc-provider "$here"

echo "oidc: installing oidc-provider $oidc_provider" >&2
npm install --prefix "$tmp/whole" --no-save --no-audit --no-fund --loglevel=error "oidc-provider@$oidc_provider" >&2 9>&-

built
