package main

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"math/big"
	"net/http"
	"time"

	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/result"
	"github.com/notaryproject/notation-core-go/signature"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/ocsp"
)

// Serves what there is at each URL; a server of OCSP is known by its host.
func (a *all) RoundTrip(asked *http.Request) (*http.Response, error) {
	found, known := a.Pages[asked.URL.String()]
	if !known {
		found, known = a.Pages[asked.URL.Host]
	}
	if !known {
		found.Status = http.StatusNotFound
	}
	return &http.Response{StatusCode: found.Status, Body: io.NopCloser(bytes.NewReader(found.Data)), Header: http.Header{}, Request: asked}, nil
}

// Signatures whose certificates name lists and servers, and what those say.
func (a *all) revocations() {
	root := issuer{key: ecKey(elliptic.P256())}
	root.cert = certificate("revoking root", root.key, nil, authority(2))
	lists := func(made *x509.Certificate) { made.KeyUsage |= x509.KeyUsageCRLSign }
	middle := issuer{key: rsaKey(2048)}
	middle.cert = certificate("revoking", middle.key, &root, authority(1), lists)
	other := issuer{key: rsaKey(2048)}
	other.cert = certificate("revoking", other.key, nil, authority(1), lists)
	a.Certificates["revoking"] = text(root.cert)
	key := ecKey(elliptic.P256())

	at := func(urls ...string) change {
		return func(made *x509.Certificate) { made.CRLDistributionPoints = urls }
	}
	asks := func(hosts ...string) change {
		return func(made *x509.Certificate) {
			for _, host := range hosts {
				made.OCSPServer = append(made.OCSPServer, "http://"+host)
			}
		}
	}
	leafOf := func(changes ...change) *x509.Certificate {
		return certificate("signer", key, &middle, append([]change{leaf}, changes...)...)
	}
	list := func(url string, by issuer, number int64, change func(*x509.RevocationList), entries ...x509.RevocationListEntry) {
		template := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: begin, NextUpdate: end, RevokedCertificateEntries: entries}
		if change != nil {
			change(template)
		}
		a.Pages[url] = page{Status: 200, Data: must(x509.CreateRevocationList(rand.Reader, template, by.cert, by.key))}
	}
	entry := func(serial *big.Int, reason int, extensions ...pkix.Extension) x509.RevocationListEntry {
		return x509.RevocationListEntry{SerialNumber: serial, RevocationTime: past, ReasonCode: reason, ExtraExtensions: extensions}
	}
	extension := func(id int, critical bool, value any) pkix.Extension {
		raw, is := value.([]byte)
		if !is {
			raw = must(asn1.Marshal(value))
		}
		return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, id}, Critical: critical, Value: raw}
	}
	elsewhere := entry(big.NewInt(1<<40), 1)
	sign := func(tag string, cert *x509.Certificate, change func(*signature.SignRequest), between ...*x509.Certificate) {
		chain := append(append([]*x509.Certificate{cert}, between...), middle.cert, root.cert)
		by := identity{key, chain}
		a.push("revocation-"+tag, jws, func(target ocispec.Descriptor) []byte { return signed(jws, target, by, change) })
		var when time.Time
		if change != nil {
			when = past
		}
		client := &http.Client{Transport: a}
		fetcher := must(crl.NewHTTPFetcher(client))
		validator := must(revocation.NewWithOptions(revocation.Options{OCSPHTTPClient: client, CRLFetcher: fetcher}))
		options := revocation.ValidateContextOptions{CertChain: chain, AuthenticSigningTime: when}
		verdict := "good"
		for _, one := range must(validator.ValidateContext(ctx, options)) {
			switch one.Result {
			case result.ResultRevoked:
				verdict = "revoked"
			case result.ResultUnknown:
				if verdict == "good" {
					verdict = "unknown"
				}
			}
		}
		a.Revocation["revocation-"+tag] = verdict
	}
	byAuthority := func(asked *signature.SignRequest) {
		asked.SigningScheme = signature.SigningSchemeX509SigningAuthority
	}

	// One list, as it should be or not.
	for name, make := range map[string]func(url string, serial *big.Int){
		"list-good":    func(url string, serial *big.Int) { list(url, middle, 1, nil, elsewhere) },
		"list-empty":   func(url string, serial *big.Int) { list(url, middle, 1, nil) },
		"list-revoked": func(url string, serial *big.Int) { list(url, middle, 1, nil, elsewhere, entry(serial, 1)) },
		"list-plain":   func(url string, serial *big.Int) { list(url, middle, 1, nil, entry(serial, 0), elsewhere) },
		"list-hold":    func(url string, serial *big.Int) { list(url, middle, 1, nil, entry(serial, 6)) },
		"list-removed": func(url string, serial *big.Int) { list(url, middle, 1, nil, entry(serial, 8)) },
		"list-stale": func(url string, serial *big.Int) {
			list(url, middle, 1, func(made *x509.RevocationList) { made.NextUpdate = past }, elsewhere)
		},
		"list-foreign": func(url string, serial *big.Int) { list(url, other, 1, nil) },
		"list-critical": func(url string, serial *big.Int) {
			list(url, middle, 1, func(made *x509.RevocationList) {
				made.ExtraExtensions = []pkix.Extension{extension(99, true, "x")}
			})
		},
		"list-critical-entry": func(url string, serial *big.Int) {
			list(url, middle, 1, nil, entry(serial, 8, extension(99, true, "x")))
		},
		"list-not":    func(url string, serial *big.Int) { a.Pages[url] = page{Status: 200, Data: []byte("nothing")} },
		"list-absent": func(url string, serial *big.Int) {},
		"list-error":  func(url string, serial *big.Int) { a.Pages[url] = page{Status: 500} },
	} {
		url := "http://lists.example.com/" + name + ".crl"
		cert := leafOf(at(url))
		make(url, cert.SerialNumber)
		sign(name, cert, nil)
	}
	// Several, of which all count.
	list("http://lists.example.com/one.crl", middle, 1, nil, elsewhere)
	sign("lists-good", leafOf(at("http://lists.example.com/one.crl", "http://lists.example.com/list-empty.crl")), nil)
	sign("lists-absent", leafOf(at("http://lists.example.com/one.crl", "http://lists.example.com/no.crl")), nil)
	two := leafOf(at("http://lists.example.com/one.crl", "http://lists.example.com/two.crl"))
	list("http://lists.example.com/two.crl", middle, 1, nil, entry(two.SerialNumber, 4))
	sign("lists-revoked", two, nil)
	sign("list-ldap", leafOf(at("ldap://lists.example.com/one.crl")), nil)

	// Lists with changes.
	type name struct {
		Full []asn1.RawValue `asn1:"optional,tag:0"`
	}
	type point struct {
		Name name `asn1:"optional,tag:0"`
	}
	freshest := func(url string) func(*x509.RevocationList) {
		value := []point{{name{[]asn1.RawValue{{Tag: 6, Class: asn1.ClassContextSpecific, Bytes: []byte(url)}}}}}
		return func(made *x509.RevocationList) { made.ExtraExtensions = []pkix.Extension{extension(46, false, value)} }
	}
	changes := func(of int64) func(*x509.RevocationList) {
		return func(made *x509.RevocationList) { made.ExtraExtensions = []pkix.Extension{extension(27, true, of)} }
	}
	for name, make := range map[string]func(url string, serial *big.Int){
		"changes-good":    func(url string, serial *big.Int) { list(url, middle, 7, changes(5), elsewhere) },
		"changes-revoked": func(url string, serial *big.Int) { list(url, middle, 7, changes(5), entry(serial, 1)) },
		"changes-stale": func(url string, serial *big.Int) {
			list(url, middle, 7, func(made *x509.RevocationList) {
				changes(5)(made)
				made.NextUpdate = past
			})
		},
		"changes-older":  func(url string, serial *big.Int) { list(url, middle, 5, changes(5)) },
		"changes-later":  func(url string, serial *big.Int) { list(url, middle, 7, changes(6)) },
		"changes-whole":  func(url string, serial *big.Int) { list(url, middle, 7, nil) },
		"changes-absent": func(url string, serial *big.Int) {},
	} {
		url := "http://lists.example.com/" + name + ".crl"
		cert := leafOf(at(url))
		list(url, middle, 5, freshest("http://lists.example.com/delta/"+name), elsewhere)
		make("http://lists.example.com/delta/"+name, cert.SerialNumber)
		sign(name, cert, nil)
	}
	// Revoked for what was signed later.
	for name, from := range map[string]time.Time{"authority-before": over, "authority-after": begin} {
		url := "http://lists.example.com/" + name + ".crl"
		cert := leafOf(at(url))
		value := must(asn1.MarshalWithParams(from, "generalized"))
		list(url, middle, 1, nil, entry(cert.SerialNumber, 1, extension(24, false, value)))
		sign(name, cert, byAuthority)
		// Whoever signs says nothing of when that was that is proven.
		sign("no-"+name, cert, nil)
	}
	// An authority in between.
	under := issuer{key: rsaKey(2048)}
	under.cert = certificate("under", under.key, &middle, authority(0), at("http://lists.example.com/under.crl"))
	list("http://lists.example.com/under.crl", middle, 1, nil, entry(under.cert.SerialNumber, 2))
	sign("between", certificate("signer", key, &under, leaf), nil, under.cert)

	// Servers.
	delegate := func(key crypto.Signer, by issuer, changes ...change) *x509.Certificate {
		return certificate("responder", key, &by, append([]change{func(made *x509.Certificate) {
			made.KeyUsage = x509.KeyUsageDigitalSignature
			made.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}
		}}, changes...)...)
	}
	responder := ecKey(elliptic.P256())
	answer := func(host string, cert *x509.Certificate, status int, by issuer, change func(*ocsp.Response)) {
		template := ocsp.Response{Status: status, SerialNumber: cert.SerialNumber, ThisUpdate: begin, NextUpdate: end, RevokedAt: past, IssuerHash: crypto.SHA1}
		if change != nil {
			change(&template)
		}
		if by.cert != middle.cert {
			template.Certificate = by.cert
		}
		question := must(ocsp.CreateRequest(cert, middle.cert, &ocsp.RequestOptions{Hash: crypto.SHA1}))
		a.Pages[host] = page{Status: 200, Data: must(ocsp.CreateResponse(middle.cert, by.cert, template, by.key)), Question: question}
	}
	for name, make := range map[string]func(host string, cert *x509.Certificate){
		"server-good":    func(host string, cert *x509.Certificate) { answer(host, cert, ocsp.Good, middle, nil) },
		"server-revoked": func(host string, cert *x509.Certificate) { answer(host, cert, ocsp.Revoked, middle, nil) },
		"server-unknown": func(host string, cert *x509.Certificate) { answer(host, cert, ocsp.Unknown, middle, nil) },
		"server-delegated": func(host string, cert *x509.Certificate) {
			answer(host, cert, ocsp.Good, issuer{responder, delegate(responder, middle)}, nil)
		},
		"server-delegated-revoked": func(host string, cert *x509.Certificate) {
			answer(host, cert, ocsp.Revoked, issuer{responder, delegate(responder, middle)}, nil)
		},
		"server-foreign": func(host string, cert *x509.Certificate) {
			answer(host, cert, ocsp.Good, issuer{responder, delegate(responder, other)}, nil)
		},
		"server-stale": func(host string, cert *x509.Certificate) {
			answer(host, cert, ocsp.Good, middle, func(made *ocsp.Response) { made.NextUpdate = past })
		},
		"server-endless": func(host string, cert *x509.Certificate) {
			answer(host, cert, ocsp.Good, middle, func(made *ocsp.Response) { made.NextUpdate = time.Time{} })
		},
		"server-other": func(host string, cert *x509.Certificate) {
			answer(host, cert, ocsp.Good, middle, func(made *ocsp.Response) { made.SerialNumber = big.NewInt(1 << 40) })
		},
		"server-later": func(host string, cert *x509.Certificate) {
			a.Pages[host] = page{Status: 200, Data: ocsp.TryLaterErrorResponse}
		},
		"server-not":    func(host string, cert *x509.Certificate) { a.Pages[host] = page{Status: 200, Data: []byte("nothing")} },
		"server-absent": func(host string, cert *x509.Certificate) {},
	} {
		host := name + ".example.com"
		cert := leafOf(asks(host))
		make(host, cert)
		sign(name, cert, nil)
	}
	// By what is not for that.
	wrong := leafOf(asks("server-purpose.example.com"))
	own := delegate(responder, middle, func(made *x509.Certificate) { made.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} })
	answer("server-purpose.example.com", wrong, ocsp.Good, issuer{responder, own}, nil)
	sign("server-purpose", wrong, nil)
	// The second one, and a list where none says it.
	second := leafOf(asks("absent.example.com", "second.example.com"))
	answer("second.example.com", second, ocsp.Good, middle, nil)
	sign("servers-second", second, nil)
	for name, status := range map[string]int{"both-good": ocsp.Good, "both-unknown": ocsp.Unknown, "both-absent": -1} {
		for kind, reason := range map[string]int{"good": 8, "revoked": 1} {
			tag := name + "-list-" + kind
			url := "http://lists.example.com/" + tag + ".crl"
			cert := leafOf(asks(tag+".example.com"), at(url))
			list(url, middle, 1, nil, entry(cert.SerialNumber, reason))
			if status >= 0 {
				answer(tag+".example.com", cert, status, middle, nil)
			}
			sign(tag, cert, nil)
		}
	}
}
