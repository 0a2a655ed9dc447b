#!/bin/sh
# Writes signed.json again: what the real `cosign` leaves in a real registry, and the public keys of those who signed. Both
# programs come from tests/clients/install.sh. Keys and signatures are others each time; the private ones are thrown away.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
clients=$(sh "$here/../../../../../tests/clients/install.sh")
PATH=$clients/bin:$PATH
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
port=5877
cat >registry.yml <<END
version: 0.1
storage:
  filesystem: {rootdirectory: $work/data}
http:
  addr: 127.0.0.1:$port
END
OTEL_TRACES_EXPORTER=none registry serve registry.yml >registry.log 2>&1 &
server=$!
until curl -fs "http://127.0.0.1:$port/v2/" >/dev/null; do sleep 0.2; done

export COSIGN_PASSWORD=
cosign generate-key-pair --output-key-prefix p256
openssl ecparam -name secp384r1 -genkey -noout -out p384.pem
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.pem
openssl genpkey -algorithm ed25519 -out ed25519.pem
for key in p384 rsa ed25519; do
	cosign import-key-pair --key "$key.pem" --output-key-prefix "$key" -y
done
push() {
	mkdir -p files
	printf 'word: %s\n' "$1" >files/app.yaml
	flux push artifact "oci://127.0.0.1:$port/app:$1" --path=files --source=https://git.example/app \
		--revision=main@sha1:1111111111111111111111111111111111111111 --insecure-registry
}
sign() { # TAG KEY FORM
	image=127.0.0.1:$port/app@$(curl -fsI -H 'Accept: application/vnd.oci.image.manifest.v1+json' \
		"http://127.0.0.1:$port/v2/app/manifests/$1" | tr -d '\r' | sed -n 's/^[Dd]ocker-[Cc]ontent-[Dd]igest: //p')
	cosign sign --key "$2.key" --new-bundle-format="$3" --use-signing-config=false --tlog-upload=false -y "$image"
}
for key in p256 p384 rsa ed25519; do
	push "old-$key"
	sign "old-$key" "$key" false
	push "bundle-$key"
	sign "bundle-$key" "$key" true
done
push old-several
for key in p256 rsa p384; do sign old-several "$key" false; done
push attested
echo '{}' >predicate.json
cosign attest --key p256.key --new-bundle-format=true --use-signing-config=false --tlog-upload=false -y \
	--predicate predicate.json --type https://example.com/scan/v1 "127.0.0.1:$port/app:attested"
push unsigned

python3 - "$work" "$here/signed.json" <<'END'
import base64, json, os, sys
work, out = sys.argv[1:]
root = os.path.join(work, "data/docker/registry/v2")
tags, blobs, keys = {}, {}, {}
folder = os.path.join(root, "repositories/app/_manifests/tags")
for tag in sorted(os.listdir(folder)):
    tags[tag] = open(os.path.join(folder, tag, "current/link")).read()
for base, _, files in os.walk(os.path.join(root, "blobs")):
    for name in files:
        data = open(os.path.join(base, name), "rb").read()
        try:
            kind = json.loads(data).get("mediaType", "application/octet-stream")
        except ValueError:
            kind = "application/octet-stream"
        blobs["sha256:" + os.path.basename(base)] = {"kind": kind, "data": base64.b64encode(data).decode()}
for key in ["p256", "p384", "rsa", "ed25519"]:
    keys[key] = open(os.path.join(work, key + ".pub")).read()
json.dump({"tags": tags, "blobs": blobs, "keys": keys}, open(out, "w"), indent=1, sort_keys=True)
open(out, "a").write("\n")
END
