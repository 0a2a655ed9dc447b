package main

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/digitorus/timestamp"
)

const (
	// Where an entry lies in its log, and in the whole of logs.
	place, offset = 5, 1000
	leaves        = 11
)

func (w *world) sign(store *store, name, image string, manifest []byte, how how) {
	key := newKey()
	certificate := w.certificate(how, key.Public())
	hexed := strings.TrimPrefix(image, "sha256:")
	statement := must(json.Marshal(object{
		"_type": "https://in-toto.io/Statement/v1", "subject": []object{{"digest": object{"sha256": hexed}}},
		"predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": object{},
	}))
	simple := must(json.Marshal(object{"critical": object{
		"identity": object{"docker-reference": "registry.example/app"}, "image": object{"docker-manifest-digest": image},
		"type": "cosign container image signature",
	}, "optional": nil}))
	const kind = "application/vnd.in-toto+json"
	encode := func(payload []byte) []byte {
		return []byte(fmt.Sprintf("DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	}
	payload, message := statement, encode(statement)
	switch how.form {
	case "message":
		payload, message = manifest, manifest
	case "old":
		payload, message = simple, simple
	}
	signature := signed(key, message)
	loggedSignature, loggedPayload := signature, payload
	switch how.entryOf {
	case "signature":
		loggedSignature = signed(key, message)
	case "payload":
		loggedPayload = append([]byte{}, payload...)
		loggedPayload = append(loggedPayload, '\n')
	}
	body, bodyKind := entryBody(how, certificate, loggedPayload, message, loggedSignature, statement)
	at := w.at
	if how.expired {
		at = at.Add(time.Hour)
	}
	entry := w.entry(how, body, bodyKind, at)
	var stamp []byte
	if how.stamped {
		stamp = w.stamp(signature, at)
	}
	if how.form == "old" {
		w.putOld(store, image, simple, signature, certificate, how, entry, stamp)
		return
	}
	material := object{"certificate": object{"rawBytes": certificate.Raw}, "tlogEntries": []object{entry}}
	if stamp != nil {
		material["timestampVerificationData"] = object{"rfc3161Timestamps": []object{{"signedTimestamp": stamp}}}
	}
	bundle := object{"mediaType": bundleKind, "verificationMaterial": material}
	if how.form == "message" {
		digest := sha256.Sum256(manifest)
		bundle["messageSignature"] = object{"messageDigest": object{"algorithm": "SHA2_256", "digest": digest[:]}, "signature": signature}
	} else {
		bundle["dsseEnvelope"] = object{"payload": statement, "payloadType": kind, "signatures": []object{{"sig": signature}}}
	}
	store.putBundle(image, len(manifest), must(json.Marshal(bundle)))
}

func pemOf(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// The log's entry of a signature, as text. (An entry of an envelope has its own hash too, of how whoever uploaded it wrote it. Rekor v2
// has signatures of envelopes like any others.)
func entryBody(how how, certificate *x509.Certificate, payload, message, signature, statement []byte) ([]byte, object) {
	isEnvelope := how.form == "bundle"
	if how.v2 {
		verifier := object{"keyDetails": "PKIX_ECDSA_P256_SHA_256", "x509Certificate": object{"rawBytes": certificate.Raw}}
		sum := sha256.Sum256(message)
		spec := object{"hashedRekordV002": object{
			"data":      object{"algorithm": "SHA2_256", "digest": sum[:]},
			"signature": object{"content": signature, "verifier": verifier},
		}}
		kind := object{"kind": "hashedrekord", "version": "0.0.2"}
		return must(json.Marshal(object{"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": spec})), kind
	}
	kind, spec := "hashedrekord", object{
		"data":      object{"hash": object{"algorithm": "sha256", "value": hash(payload)}},
		"signature": object{"content": signature, "publicKey": object{"content": pemOf(certificate)}},
	}
	if isEnvelope {
		kind, spec = "dsse", object{
			"envelopeHash": object{"algorithm": "sha256", "value": hash(statement)},
			"payloadHash":  object{"algorithm": "sha256", "value": hash(payload)},
			"signatures":   []object{{"signature": b64(signature), "verifier": pemOf(certificate)}},
		}
	}
	return must(json.Marshal(object{"apiVersion": "0.0.1", "kind": kind, "spec": spec})), object{"kind": kind, "version": "0.0.1"}
}

// The log's entry as bundles have it.
func (w *world) entry(how how, body []byte, kind object, at time.Time) object {
	root, path := tree(body)
	id, name := idOf(w.logs), "log.example - 7"
	if how.v2 {
		id, name = w.id2(), "log2.example"
	}
	note := fmt.Sprintf("%s\n%d\n%s\n", name, leaves, b64(root))
	var line []byte
	switch {
	case how.v2:
		line = append(append([]byte{}, id[:4]...), ed25519.Sign(w.logs2, []byte(note))...)
	case how.strange:
		line = append(append([]byte{}, id[:4]...), signed(w.otherKey, []byte(note))...)
	default:
		line = append(append([]byte{}, id[:4]...), signed(w.logs, []byte(note))...)
	}
	signer := strings.Split(name, " ")[0]
	envelope := fmt.Sprintf("%s\n— %s %s\n", note, signer, b64(line))
	index := strconv.Itoa(place + offset)
	proofIndex := strconv.Itoa(place)
	if how.v2 {
		index = proofIndex
	}
	entry := object{
		"logIndex": index, "logId": object{"keyId": id}, "kindVersion": kind, "canonicalizedBody": body,
		"inclusionProof": object{
			"logIndex": proofIndex, "rootHash": root, "treeSize": strconv.Itoa(leaves), "hashes": path, "checkpoint": object{"envelope": envelope},
		},
	}
	if how.v2 {
		return entry
	}
	entry["integratedTime"] = strconv.FormatInt(at.Unix(), 10)
	if !how.noTime {
		promise := fmt.Sprintf(`{"body":"%s","integratedTime":%d,"logID":"%x","logIndex":%s}`, b64(body), at.Unix(), id, index)
		entry["inclusionPromise"] = object{"signedEntryTimestamp": signed(w.logs, []byte(promise))}
	}
	return entry
}

// The root of a log with this entry, and the hashes that lead to it.
func tree(body []byte) ([]byte, [][]byte) {
	var all [][]byte
	for number := range leaves {
		data := []byte(strconv.Itoa(number))
		if number == place {
			data = body
		}
		sum := sha256.Sum256(append([]byte{0}, data...))
		all = append(all, sum[:])
	}
	var path [][]byte
	var root func(from, to int) []byte
	root = func(from, to int) []byte {
		if to-from == 1 {
			return all[from]
		}
		half := 1
		for half*2 < to-from {
			half *= 2
		}
		left, right := root(from, from+half), root(from+half, to)
		if from <= place && place < to {
			if place < from+half {
				path = append(path, right)
			} else {
				path = append(path, left)
			}
		}
		sum := sha256.Sum256(append(append([]byte{1}, left...), right...))
		return sum[:]
	}
	return root(0, leaves), path
}

// A timestamp of a signature.
func (w *world) stamp(signature []byte, at time.Time) []byte {
	sum := sha256.Sum256(signature)
	stamp := timestamp.Timestamp{
		HashAlgorithm: crypto.SHA256, HashedMessage: sum[:], Time: at, Nonce: big.NewInt(7), Policy: []int{2, 4, 5, 6},
		AddTSACertificate: true, SerialNumber: serial(), Ordering: false, Qualified: false,
	}
	var key crypto.Signer = w.stampKey
	return must(stamp.CreateResponseWithOpts(w.stampCertificate, key, crypto.SHA256))
}

// A signature of the old form, as cosign annotates it.
func (w *world) putOld(store *store, image string, payload, signature []byte, certificate *x509.Certificate, how how, entry object, stamp []byte) {
	at := must(strconv.ParseInt(entry["integratedTime"].(string), 10, 64))
	bundle := object{
		"SignedEntryTimestamp": entry["inclusionPromise"].(object)["signedEntryTimestamp"],
		"Payload": object{
			"body": b64(entry["canonicalizedBody"].([]byte)), "integratedTime": at, "logIndex": place + offset,
			"logID": hex.EncodeToString(idOf(w.logs)),
		},
	}
	annotations := object{
		"dev.cosignproject.cosign/signature": b64(signature),
		"dev.sigstore.cosign/bundle":         string(must(json.Marshal(bundle))),
		"dev.sigstore.cosign/certificate":    string(pemOf(certificate)),
		"dev.sigstore.cosign/chain":          string(pemOf(how.authority.issuing)) + string(pemOf(how.authority.root)),
	}
	if stamp != nil {
		annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(must(json.Marshal(object{"SignedRFC3161Timestamp": stamp})))
	}
	store.putOld(image, payload, annotations)
}
