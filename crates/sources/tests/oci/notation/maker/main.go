// Makes artifacts that are signed as the real notation signs them, and some that nobody should accept, as one file of JSON: tags,
// blobs and certificates. See ../regenerate.sh.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"strings"
	"time"

	"github.com/notaryproject/notation-core-go/signature"
	_ "github.com/notaryproject/notation-core-go/signature/cose"
	_ "github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/registry"
	"github.com/notaryproject/notation-go/signer"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/memory"
)

const (
	jws     = "application/jose+json"
	cose    = "application/cose"
	payload = "application/vnd.cncf.notary.payload.v1+json"
)

var (
	ctx   = context.Background()
	begin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	past  = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	over  = time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	end   = time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC)
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

type blob struct {
	Kind string `json:"kind"`
	Data []byte `json:"data"`
}

// What is answered at a URL, or by a host of OCSP.
type page struct {
	Status int    `json:"status"`
	Data   []byte `json:"data"`
	// What a server of OCSP is asked.
	Question []byte `json:"question,omitempty"`
}

type all struct {
	Tags         map[string]string `json:"tags"`
	Blobs        map[string]blob   `json:"blobs"`
	Certificates map[string]string `json:"certificates"`
	Pages        map[string]page   `json:"pages"`
	// What notation's own library makes of the certificates of a signature: good, revoked or unknown.
	Revocation map[string]string `json:"revocation"`
	// Whether notation takes signatures with countersignatures of their time.
	Stamps map[string]bool `json:"stamps"`
}

func (a *all) put(kind string, data []byte) ocispec.Descriptor {
	found := digest.FromBytes(data)
	a.Blobs[found.String()] = blob{kind, data}
	return ocispec.Descriptor{MediaType: kind, Digest: found, Size: int64(len(data))}
}

// An artifact as Flux makes them, at a tag.
func (a *all) artifact(tag string) ocispec.Descriptor {
	var layer bytes.Buffer
	zipped := gzip.NewWriter(&layer)
	files := tar.NewWriter(zipped)
	file := []byte("word: one\n")
	if err := files.WriteHeader(&tar.Header{Name: "app.yaml", Mode: 0o644, Size: int64(len(file)), ModTime: begin}); err != nil {
		panic(err)
	}
	must(files.Write(file))
	files.Close()
	zipped.Close()
	manifest := ocispec.Manifest{
		Versioned:   specs.Versioned{SchemaVersion: 2},
		MediaType:   ocispec.MediaTypeImageManifest,
		Config:      a.put("application/vnd.cncf.flux.config.v1+json", []byte("{}")),
		Layers:      []ocispec.Descriptor{a.put("application/vnd.cncf.flux.content.v1.tar+gzip", layer.Bytes())},
		Annotations: map[string]string{"org.opencontainers.image.title": tag},
	}
	made := a.put(ocispec.MediaTypeImageManifest, must(json.Marshal(manifest)))
	a.Tags[tag] = made.Digest.String()
	return made
}

// Pushes envelopes as notation does, and the list of them that registries without lists of referrers have.
func (a *all) attach(target ocispec.Descriptor, push func(registry.Repository)) {
	store := memory.New()
	if err := store.Push(ctx, target, bytes.NewReader(a.Blobs[target.Digest.String()].Data)); err != nil {
		panic(err)
	}
	if err := store.Tag(ctx, target, target.Digest.String()); err != nil {
		panic(err)
	}
	repository := registry.NewRepository(store)
	push(repository)
	list := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, node := range must(store.Predecessors(ctx, target)) {
		manifest := must(io.ReadAll(must(store.Fetch(ctx, node))))
		a.put(node.MediaType, manifest)
		var read ocispec.Manifest
		if err := json.Unmarshal(manifest, &read); err != nil {
			panic(err)
		}
		for _, one := range append(read.Layers, read.Config) {
			a.put(one.MediaType, must(io.ReadAll(must(store.Fetch(ctx, one)))))
		}
		node.ArtifactType = registry.ArtifactTypeNotation
		node.Annotations = read.Annotations
		list.Manifests = append(list.Manifests, node)
	}
	tag := "sha256-" + target.Digest.Encoded()
	a.Tags[tag] = a.put(ocispec.MediaTypeImageIndex, must(json.Marshal(list))).Digest.String()
}

func (a *all) push(tag, kind string, make func(ocispec.Descriptor) []byte) {
	target := a.artifact(tag)
	a.attach(target, func(repository registry.Repository) {
		_, _, err := repository.PushSignature(ctx, kind, make(target), target, map[string]string{})
		if err != nil {
			panic(err)
		}
	})
}

// By notation itself.
func (a *all) notation(tag, kind string, by identity, days int) {
	target := a.artifact(tag)
	own := must(signer.NewGenericSigner(by.key, by.chain))
	a.attach(target, func(repository registry.Repository) {
		options := notation.SignOptions{ArtifactReference: target.Digest.String()}
		options.SignatureMediaType = kind
		options.ExpiryDuration = time.Duration(days) * 24 * time.Hour
		must(notation.Sign(ctx, own, repository, options))
	})
}

type identity struct {
	key   crypto.Signer
	chain []*x509.Certificate
}

type issuer struct {
	key  crypto.Signer
	cert *x509.Certificate
}

type change func(*x509.Certificate)

var serial int64

func subject(name string) pkix.Name {
	return pkix.Name{Country: []string{"DE"}, Province: []string{"Berlin"}, Organization: []string{"Example, Ltd"}, CommonName: name}
}

func certificate(name string, key crypto.Signer, by *issuer, changes ...change) *x509.Certificate {
	serial++
	made := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: subject(name), NotBefore: begin, NotAfter: end}
	for _, change := range changes {
		change(made)
	}
	parent, signs := made, key
	if by != nil {
		parent, signs = by.cert, by.key
	}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, made, parent, key.Public(), signs))))
}

func authority(depth int) change {
	return func(made *x509.Certificate) {
		made.BasicConstraintsValid, made.IsCA, made.MaxPathLen, made.MaxPathLenZero = true, true, depth, depth == 0
		made.KeyUsage = x509.KeyUsageCertSign
	}
}

func leaf(made *x509.Certificate) {
	made.KeyUsage = x509.KeyUsageDigitalSignature
	made.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
}

func until(time time.Time) change { return func(made *x509.Certificate) { made.NotAfter = time } }

func rsaKey(bits int) crypto.Signer { return must(rsa.GenerateKey(rand.Reader, bits)) }
func ecKey(curve elliptic.Curve) crypto.Signer {
	return must(ecdsa.GenerateKey(curve, rand.Reader))
}

func request(target ocispec.Descriptor, by identity) *signature.SignRequest {
	content := must(json.Marshal(map[string]any{"targetArtifact": target}))
	return &signature.SignRequest{
		Payload:       signature.Payload{ContentType: payload, Content: content},
		Signer:        must(signature.NewLocalSigner(by.chain, by.key)),
		SigningTime:   past,
		SigningScheme: signature.SigningSchemeX509,
		SigningAgent:  "made for tests",
	}
}

// With the library that notation stands on, for what notation itself would not sign.
func signed(kind string, target ocispec.Descriptor, by identity, change func(*signature.SignRequest)) []byte {
	asked := request(target, by)
	if change != nil {
		change(asked)
	}
	envelope := must(signature.NewEnvelope(kind))
	return must(envelope.Sign(asked))
}

// The same signature with another chain beside it, which is not part of what is signed.
func beside(envelope []byte, chain []*x509.Certificate) []byte {
	var read map[string]any
	if err := json.Unmarshal(envelope, &read); err != nil {
		panic(err)
	}
	var list []string
	for _, one := range chain {
		list = append(list, base64.StdEncoding.EncodeToString(one.Raw))
	}
	read["header"].(map[string]any)["x5c"] = list
	return must(json.Marshal(read))
}

// The same by a key that is too weak.
func weakly(envelope []byte, key *rsa.PrivateKey) []byte {
	var read map[string]any
	if err := json.Unmarshal(envelope, &read); err != nil {
		panic(err)
	}
	protected := strings.Replace(string(must(base64.RawURLEncoding.DecodeString(read["protected"].(string)))), "ES256", "PS256", 1)
	read["protected"] = base64.RawURLEncoding.EncodeToString([]byte(protected))
	hash := sha256.Sum256([]byte(read["protected"].(string) + "." + read["payload"].(string)))
	options := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}
	read["signature"] = base64.RawURLEncoding.EncodeToString(must(rsa.SignPSS(rand.Reader, key, crypto.SHA256, hash[:], options)))
	return must(json.Marshal(read))
}

func text(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

func main() {
	out := &all{map[string]string{}, map[string]blob{}, map[string]string{}, map[string]page{}, map[string]string{}, map[string]bool{}}
	root := issuer{key: ecKey(elliptic.P384())}
	root.cert = certificate("root", root.key, nil, authority(1))
	middle := issuer{key: rsaKey(2048)}
	middle.cert = certificate("middle", middle.key, &root, authority(0))
	other := issuer{key: rsaKey(2048)}
	other.cert = certificate("other", other.key, nil, authority(-1))
	out.Certificates["root"], out.Certificates["other"] = text(root.cert), text(other.cert)
	out.Certificates["middle"] = text(middle.cert)

	of := func(key crypto.Signer, changes ...change) identity {
		own := certificate("signer", key, &middle, append([]change{leaf}, changes...)...)
		return identity{key, []*x509.Certificate{own, middle.cert, root.cert}}
	}
	for name, key := range map[string]crypto.Signer{
		"es256": ecKey(elliptic.P256()), "es384": ecKey(elliptic.P384()), "es512": ecKey(elliptic.P521()),
		"ps256": rsaKey(2048), "ps384": rsaKey(3072), "ps512": rsaKey(4096),
	} {
		out.notation("jws-"+name, jws, of(key), 0)
		out.notation("cose-"+name, cose, of(key), 36000)
	}
	key := ecKey(elliptic.P256())
	good := of(key)
	own := certificate("alone", key, nil, leaf)
	out.Certificates["alone"] = text(own)
	out.notation("alone", jws, identity{key, []*x509.Certificate{own}}, 0)
	out.artifact("unsigned")
	// One by somebody else, and then a good one.
	target := out.artifact("several")
	stranger := identity{key, []*x509.Certificate{certificate("stranger", key, &other, leaf), other.cert}}
	out.attach(target, func(repository registry.Repository) {
		for _, by := range []identity{stranger, good} {
			options := notation.SignOptions{ArtifactReference: target.Digest.String()}
			options.SignatureMediaType = cose
			must(notation.Sign(ctx, must(signer.NewGenericSigner(by.key, by.chain)), repository, options))
		}
	})

	old := of(key, until(over))
	for form, kind := range map[string]string{"jws": jws, "cose": cose} {
		with := func(name string, by identity, change func(*signature.SignRequest)) {
			out.push(form+"-"+name, kind, func(target ocispec.Descriptor) []byte { return signed(kind, target, by, change) })
		}
		with("expired-certificate", old, nil)
		with("authority", old, func(asked *signature.SignRequest) {
			asked.SigningScheme = signature.SigningSchemeX509SigningAuthority
		})
		with("expired", good, func(asked *signature.SignRequest) { asked.Expiry = over })
		with("critical", good, func(asked *signature.SignRequest) {
			asked.ExtendedSignedAttributes = []signature.Attribute{{Key: "com.example.unknown", Critical: true, Value: "x"}}
		})
		with("extended", good, func(asked *signature.SignRequest) {
			asked.ExtendedSignedAttributes = []signature.Attribute{{Key: "com.example.unknown", Value: "x"}}
		})
		with("plugin", good, func(asked *signature.SignRequest) {
			asked.ExtendedSignedAttributes = []signature.Attribute{{Key: "io.cncf.notary.verificationPlugin", Critical: true, Value: "x"}}
		})
		with("payload-type", good, func(asked *signature.SignRequest) { asked.Payload.ContentType = "application/json" })
		with("size", good, func(asked *signature.SignRequest) {
			asked.Payload.Content = bytes.Replace(asked.Payload.Content, []byte(`"size":`), []byte(`"size":1`), 1)
		})
		with("media-type", good, func(asked *signature.SignRequest) {
			asked.Payload.Content = bytes.Replace(asked.Payload.Content, []byte("oci.image.manifest"), []byte("oci.image.other"), 1)
		})
	}

	chains := map[string][]*x509.Certificate{
		"eku-none":    of(key, func(made *x509.Certificate) { made.ExtKeyUsage = nil }).chain,
		"eku-server":  of(key, func(made *x509.Certificate) { made.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }).chain,
		"eku-any":     of(key, func(made *x509.Certificate) { made.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }).chain,
		"usage-none":  of(key, func(made *x509.Certificate) { made.KeyUsage = 0 }).chain,
		"usage-more":  of(key, func(made *x509.Certificate) { made.KeyUsage |= x509.KeyUsageKeyAgreement }).chain,
		"usage-other": of(key, func(made *x509.Certificate) { made.KeyUsage = x509.KeyUsageContentCommitment }).chain,
		"leaf-is-ca":  of(key, authority(-1)).chain,
		"sha1":        of(key, func(made *x509.Certificate) { made.SignatureAlgorithm = x509.SHA1WithRSA }).chain,
		"crl":         of(key, func(made *x509.Certificate) { made.CRLDistributionPoints = []string{"http://crl.example/a.crl"} }).chain,
		"ocsp":        of(key, func(made *x509.Certificate) { made.OCSPServer = []string{"http://ocsp.example"} }).chain,
		"ca-issuers":  of(key, func(made *x509.Certificate) { made.IssuingCertificateURL = []string{"http://ca.example/ca.crt"} }).chain,
		"rootless":    good.chain[:2],
		"disorder":    {good.chain[0], good.chain[2], good.chain[1]},
		"unrelated":   {good.chain[0], good.chain[1], good.chain[2], other.cert},
		"alone-other": {good.chain[0]},
		"other-key":   of(ecKey(elliptic.P256())).chain,
		"short-subject": of(key, func(made *x509.Certificate) {
			made.Subject = pkix.Name{CommonName: "signer"}
		}).chain,
	}
	weak := issuer{key: rsaKey(1024)}
	weak.cert = certificate("weak", weak.key, nil, authority(-1))
	out.Certificates["weak"] = text(weak.cert)
	chains["weak-root"] = []*x509.Certificate{certificate("signer", key, &weak, leaf), weak.cert}
	under := issuer{key: ecKey(elliptic.P256())}
	under.cert = certificate("under", under.key, &middle, authority(0))
	chains["path"] = []*x509.Certificate{certificate("signer", key, &under, leaf), under.cert, middle.cert, root.cert}
	user := issuer{key: ecKey(elliptic.P256())}
	user.cert = certificate("user", user.key, &middle, leaf)
	chains["by-a-leaf"] = []*x509.Certificate{certificate("signer", key, &user, leaf), user.cert, middle.cert, root.cert}
	for name, chain := range chains {
		out.push("chain-"+name, jws, func(target ocispec.Descriptor) []byte { return beside(signed(jws, target, good, nil), chain) })
	}
	small := rsaKey(1024)
	out.push("weak-leaf", jws, func(target ocispec.Descriptor) []byte {
		return beside(weakly(signed(jws, target, good, nil), small.(*rsa.PrivateKey)), of(small).chain)
	})

	out.revocations()
	out.stamps()

	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(out); err != nil {
		panic(err)
	}
}
