package main

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/purpose"
	"github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/verifier"
	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	"github.com/notaryproject/notation-go/verifier/truststore"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	gocose "github.com/veraison/go-cose"
)

const stampHeader = "io.cncf.notary.timestampSignature"

// The certificates of a trust store, whatever its name.
type trusted map[truststore.Type][]*x509.Certificate

func (t trusted) GetCertificates(_ context.Context, kind truststore.Type, _ string) ([]*x509.Certificate, error) {
	return t[kind], nil
}

// An envelope with a countersignature of its time.
func stamped(kind string, envelope []byte, make func(signature []byte) []byte) []byte {
	if kind == cose {
		var message gocose.Sign1Message
		if err := message.UnmarshalCBOR(envelope); err != nil {
			panic(err)
		}
		if token := make(message.Signature); token != nil {
			message.Headers.Unprotected[stampHeader] = token
			// What was read of them would be written again.
			message.Headers.RawUnprotected = nil
		}
		return must(message.MarshalCBOR())
	}
	var read map[string]any
	if err := json.Unmarshal(envelope, &read); err != nil {
		panic(err)
	}
	made := must(base64.RawURLEncoding.DecodeString(read["signature"].(string)))
	if token := make(made); token != nil {
		read["header"].(map[string]any)[stampHeader] = base64.StdEncoding.EncodeToString(token)
	}
	return must(json.Marshal(read))
}

// Signatures with countersignatures of their time, and what notation says of each.
func (a *all) stamps() {
	root := issuer{key: ecKey(elliptic.P384())}
	root.cert = certificate("stamped root", root.key, nil, authority(1))
	middle := issuer{key: rsaKey(2048)}
	middle.cert = certificate("stamped middle", middle.key, &root, authority(0))
	key := ecKey(elliptic.P256())
	signing := func(changes ...change) identity {
		own := certificate("signer", key, &middle, append([]change{leaf}, changes...)...)
		return identity{key, []*x509.Certificate{own, middle.cert, root.cert}}
	}
	expired, good := signing(until(over)), signing()

	lists := func(made *x509.Certificate) { made.KeyUsage |= x509.KeyUsageCRLSign }
	tsa := issuer{key: ecKey(elliptic.P256())}
	tsa.cert = certificate("stamping root", tsa.key, nil, authority(1), lists)
	between := issuer{key: rsaKey(2048)}
	between.cert = certificate("stamping middle", between.key, &tsa, authority(0))
	foreign := issuer{key: ecKey(elliptic.P256())}
	foreign.cert = certificate("stamping root", foreign.key, nil, authority(1))
	a.Certificates["stamped"], a.Certificates["stamping"] = text(root.cert), text(tsa.cert)

	purposes := func(critical bool, ids ...asn1.ObjectIdentifier) change {
		return func(made *x509.Certificate) {
			made.KeyUsage = x509.KeyUsageDigitalSignature
			value := must(asn1.Marshal(ids))
			made.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: critical, Value: value}}
		}
	}
	forStamps := asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
	forCode := asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 3}
	authorityOf := func(by issuer, changes ...change) issuer {
		own := rsaKey(2048)
		return issuer{own, certificate("stamping", own, &by, append([]change{purposes(true, forStamps)}, changes...)...)}
	}
	at := func(url string) change {
		return func(made *x509.Certificate) { made.CRLDistributionPoints = []string{url} }
	}
	plain := authorityOf(tsa)
	token := func(by issuer, when time.Time, beside ...*x509.Certificate) func([]byte) []byte {
		return func(made []byte) []byte {
			hash := sha256.Sum256(made)
			asked := timestamp.Timestamp{
				HashAlgorithm: crypto.SHA256, HashedMessage: hash[:], Time: when, SerialNumber: big.NewInt(1),
				Policy: asn1.ObjectIdentifier{1, 2, 3}, AddTSACertificate: true, Certificates: beside,
			}
			response := must(asked.CreateResponseWithOpts(by.cert, by.key, crypto.SHA256))
			var read struct{ Status, Token asn1.RawValue }
			must(asn1.Unmarshal(response, &read))
			return read.Token.FullBytes
		}
	}
	changed := func(make func([]byte) []byte, at int) func([]byte) []byte {
		return func(made []byte) []byte {
			token := make(made)
			token[len(token)-at] ^= 1
			return token
		}
	}
	revoked := authorityOf(tsa, at("http://lists.example.com/stamps-revoked.crl"))
	listed := authorityOf(tsa, at("http://lists.example.com/stamps-good.crl"))
	lost := authorityOf(tsa, at("http://lists.example.com/stamps-absent.crl"))
	for name, entries := range map[string][]x509.RevocationListEntry{
		"good": nil, "revoked": {{SerialNumber: revoked.cert.SerialNumber, RevocationTime: past, ReasonCode: 1}},
	} {
		template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: begin, NextUpdate: end, RevokedCertificateEntries: entries}
		a.Pages["http://lists.example.com/stamps-"+name+".crl"] = page{Status: 200, Data: must(x509.CreateRevocationList(nil, template, tsa.cert, tsa.key))}
	}
	own := rsaKey(2048)
	alone := issuer{own, certificate("stamping alone", own, nil, purposes(true, forStamps))}
	a.Certificates["stamping-alone"] = text(alone.cert)

	client := &http.Client{Transport: a}
	fetcher := must(crl.NewHTTPFetcher(client))
	validator := func(of purpose.Purpose) revocation.Validator {
		return must(revocation.NewWithOptions(revocation.Options{OCSPHTTPClient: client, CRLFetcher: fetcher, CertChainPurpose: of}))
	}
	options := verifier.VerifierOptions{
		RevocationCodeSigningValidator: validator(purpose.CodeSigning), RevocationTimestampingValidator: validator(purpose.Timestamping),
	}
	policy := &trustpolicy.Document{Version: "1.0", TrustPolicies: []trustpolicy.TrustPolicy{{
		Name: "own", RegistryScopes: []string{"*"}, TrustStores: []string{"ca:own", "tsa:own"}, TrustedIdentities: []string{"*"},
		SignatureVerification: trustpolicy.SignatureVerification{VerificationLevel: "strict"},
	}}}
	store := trusted{
		truststore.TypeCA:  {root.cert},
		truststore.TypeTSA: {tsa.cert, alone.cert},
	}
	judge := must(verifier.NewWithOptions(policy, store, nil, options))
	for _, one := range []struct {
		name string
		by   identity
		make func([]byte) []byte
	}{
		{"good", expired, token(plain, past)},
		{"valid", good, token(plain, past)},
		{"none", good, func([]byte) []byte { return nil }},
		{"empty", good, func([]byte) []byte { return []byte{0x30, 0} }},
		{"late", expired, token(plain, over.Add(time.Hour))},
		{"last", expired, token(plain, over.Add(-time.Minute))},
		{"early", good, token(plain, begin.Add(-time.Hour))},
		{"other", good, func([]byte) []byte { return token(plain, past)([]byte("another signature")) }},
		{"foreign", good, token(authorityOf(foreign), past)},
		{"code", good, token(authorityOf(tsa, purposes(true, forCode)), past)},
		{"both", good, token(authorityOf(tsa, purposes(true, forStamps, forCode)), past)},
		{"uncritical", good, token(authorityOf(tsa, purposes(false, forStamps)), past)},
		{"expired", good, token(authorityOf(tsa, until(begin.Add(24*time.Hour))), past)},
		{"between", good, token(authorityOf(between), past, between.cert)},
		{"unled", good, token(authorityOf(between), past)},
		{"alone", good, token(alone, past)},
		{"listed", good, token(listed, past)},
		{"revoked", good, token(revoked, past)},
		{"lost", good, token(lost, past)},
		{"changed", good, changed(token(plain, past), 20)},
	} {
		for form, kind := range map[string]string{"jws": jws, "cose": cose} {
			tag := "stamp-" + form + "-" + one.name
			var target ocispec.Descriptor
			var envelope []byte
			a.push(tag, kind, func(found ocispec.Descriptor) []byte {
				target, envelope = found, stamped(kind, signed(kind, found, one.by, nil), one.make)
				return envelope
			})
			asked := notation.VerifierVerifyOptions{ArtifactReference: "registry.example/app@" + target.Digest.String(), SignatureMediaType: kind}
			_, err := judge.Verify(ctx, target, envelope, asked)
			a.Stamps[tag] = err == nil
		}
	}
}
