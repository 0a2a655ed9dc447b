#!/bin/sh
# Writes signed.json again: what notation's own library leaves in a registry, and certificates of those who signed. The library
# comes by the Go module proxy. Keys and signatures are others each time; the private ones are thrown away.
set -eu

cd "$(dirname "$0")/maker"
GOTOOLCHAIN=local go run -mod=readonly . >../signed.json.tmp
mv ../signed.json.tmp ../signed.json
