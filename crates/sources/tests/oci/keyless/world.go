package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/url"
	"time"

	ct "github.com/google/certificate-transparency-go"
	"github.com/google/certificate-transparency-go/tls"
	ctx509 "github.com/google/certificate-transparency-go/x509"
	"github.com/google/certificate-transparency-go/x509util"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// A Sigstore.
type world struct {
	at                          time.Time
	logs, certs, otherKey       *ecdsa.PrivateKey
	logs2                       ed25519.PrivateKey
	stampKey                    *ecdsa.PrivateKey
	stampRoot, stampCertificate *x509.Certificate
}

// Who issues certificates.
type authority struct {
	root, issuing *x509.Certificate
	key           *ecdsa.PrivateKey
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func spki(key crypto.Signer) []byte { return must(x509.MarshalPKIXPublicKey(key.Public())) }

func idOf(key crypto.Signer) []byte {
	hash := sha256.Sum256(spki(key))
	return hash[:]
}

func serial() *big.Int { return must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))) }

func issue(template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) *x509.Certificate {
	template.SerialNumber = serial()
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, key, signer))))
}

func named(name string, from, to time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{"Example"}}, NotBefore: from, NotAfter: to,
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

func newWorld(at time.Time) *world {
	_, logs2, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	w := &world{at: at, logs: newKey(), certs: newKey(), otherKey: newKey(), logs2: logs2, stampKey: newKey()}
	rootKey := newKey()
	root := named("stamps root", at.Add(-time.Hour), at.Add(1000*time.Hour))
	w.stampRoot = issue(root, root, rootKey.Public(), rootKey)
	usage := must(asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}}))
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: "stamps"}, NotBefore: at.Add(-time.Hour), NotAfter: at.Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}
	w.stampCertificate = issue(leaf, w.stampRoot, w.stampKey.Public(), rootKey)
	return w
}

func (w *world) authority(from, to time.Time) *authority {
	rootKey, key := newKey(), newKey()
	root := named("root", w.at.Add(-3*time.Hour), w.at.Add(1000*time.Hour))
	made := &authority{root: issue(root, root, rootKey.Public(), rootKey), key: key}
	issuing := named("issuing", from, to)
	issuing.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	issuing.MaxPathLenZero = true
	made.issuing = issue(issuing, made.root, key.Public(), rootKey)
	return made
}

// A certificate as Fulcio issues it, for a key.
func (w *world) certificate(how how, key crypto.PublicKey) *x509.Certificate {
	id := func(last int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, last} }
	var extensions []pkix.Extension
	if !how.onlyV1 {
		extensions = append(extensions, pkix.Extension{Id: id(8), Value: must(asn1.MarshalWithParams(issuer, "utf8"))})
	}
	template := &x509.Certificate{
		SerialNumber: serial(), NotBefore: w.at.Add(-time.Minute), NotAfter: w.at.Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	}
	switch {
	case how.mail:
		template.EmailAddresses = []string{"ann@example.com"}
	case how.other:
		extensions = append(extensions, *must(cryptoutils.MarshalOtherNameSAN("ann", true)))
	default:
		template.URIs = []*url.URL{must(url.Parse(subject))}
	}
	last := pkix.Extension{Id: id(1), Value: []byte(issuer)}
	make := func(extensions ...pkix.Extension) *x509.Certificate {
		template.ExtraExtensions = extensions
		der := must(x509.CreateCertificate(rand.Reader, template, how.authority.issuing, key, how.authority.key))
		return must(x509.ParseCertificate(der))
	}
	without := make(append(extensions, last)...)
	if how.noSCT {
		return without
	}
	return make(append(append(extensions, w.sct(without, how.authority)), last)...)
}

// What the log of certificates says of one.
func (w *world) sct(certificate *x509.Certificate, by *authority) pkix.Extension {
	sct := ct.SignedCertificateTimestamp{
		SCTVersion: ct.V1, LogID: ct.LogID{KeyID: sha256.Sum256(spki(w.certs))}, Timestamp: uint64(w.at.UnixMilli()),
	}
	entry := ct.LogEntry{Leaf: ct.MerkleTreeLeaf{Version: ct.V1, LeafType: ct.TimestampedEntryLeafType, TimestampedEntry: &ct.TimestampedEntry{
		Timestamp: sct.Timestamp, EntryType: ct.PrecertLogEntryType,
		PrecertEntry: &ct.PreCert{IssuerKeyHash: sha256.Sum256(by.issuing.RawSubjectPublicKeyInfo), TBSCertificate: certificate.RawTBSCertificate},
	}}}
	input := must(ct.SerializeSCTSignatureInput(sct, entry))
	sct.Signature = ct.DigitallySigned{
		Algorithm: tls.SignatureAndHashAlgorithm{Hash: tls.SHA256, Signature: tls.ECDSA}, Signature: signed(w.certs, input),
	}
	list := must(x509util.MarshalSCTsIntoSCTList([]*ct.SignedCertificateTimestamp{&sct}))
	return pkix.Extension{Id: asn1.ObjectIdentifier(ctx509.OIDExtensionCTSCT), Value: must(asn1.Marshal(must(tls.Marshal(*list))))}
}

func signed(key *ecdsa.PrivateKey, message []byte) []byte {
	hash := sha256.Sum256(message)
	return must(ecdsa.SignASN1(rand.Reader, key, hash[:]))
}

// The trusted root of it.
func (w *world) root(of *authority) string {
	from := w.at.Add(-3 * time.Hour).Format(time.RFC3339)
	key := func(key crypto.Signer, details string) object {
		return object{"rawBytes": spki(key), "keyDetails": details, "validFor": object{"start": from}}
	}
	p256 := "PKIX_ECDSA_P256_SHA_256"
	log := func(url string, signer crypto.Signer, details string, id []byte) object {
		return object{"baseUrl": url, "hashAlgorithm": "SHA2_256", "publicKey": key(signer, details), "logId": object{"keyId": id}}
	}
	chain := func(certificates ...*x509.Certificate) object {
		var all []object
		for _, one := range certificates {
			all = append(all, object{"rawBytes": one.Raw})
		}
		return object{"certificates": all}
	}
	authority := func(url string, certificates object) object {
		return object{
			"subject": object{"organization": "Example", "commonName": "x"}, "uri": url,
			"certChain": certificates, "validFor": object{"start": from},
		}
	}
	root := object{
		"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		"tlogs": []object{
			log("https://log.example", w.logs, p256, idOf(w.logs)),
			log("https://log2.example", w.logs2, "PKIX_ED25519", w.id2()),
		},
		"ctlogs":                 []object{log("https://certs.example", w.certs, p256, idOf(w.certs))},
		"certificateAuthorities": []object{authority("https://ca.example", chain(of.issuing, of.root))},
		"timestampAuthorities":   []object{authority("https://stamps.example", chain(w.stampCertificate, w.stampRoot))},
	}
	return string(must(json.MarshalIndent(root, "", " ")))
}

// What the newer log's key is called: as notes have it.
func (w *world) id2() []byte {
	public := w.logs2.Public().(ed25519.PublicKey)
	hash := sha256.Sum256(append([]byte("log2.example\n\x01"), public...))
	return hash[:]
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
