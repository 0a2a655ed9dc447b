// The keys, certificates and kubeconfigs of a cluster.

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// validity outlives any demo, and starts in the past for machines whose clock is set back.
const validity = 10 * 365 * 24 * time.Hour

type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPair(template *x509.Certificate, issuer *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(validity)
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &pair{cert, key}, nil
}

func newCA(name string) (*pair, error) {
	return newPair(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}, nil)
}

// client is a certificate for a user of the API: its common name is the user, its organizations are the groups.
func (ca *pair) client(user string, groups ...string) (*pair, error) {
	return newPair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca)
}

// server is a certificate for a server on loopback, which may be a client too (etcd's peers are both).
func (ca *pair) server(name string, dnsNames []string, ips ...net.IP) (*pair, error) {
	return newPair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    append([]string{"localhost"}, dnsNames...),
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...),
	}, ca)
}

func (p *pair) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})
}

func (p *pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(p.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func (p *pair) write(dir, name string) error {
	key, err := p.keyPEM()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".crt"), p.certPEM(), 0o600)
}

// The users of the API that a cluster starts with, by the name of their files in pki/.
var users = map[string]struct {
	user   string
	groups []string
}{
	"admin":               {"devcluster-admin", []string{"system:masters"}},
	kwokName:              {"devcluster-kwok", []string{"system:masters"}},
	controllerManagerName: {"system:kube-controller-manager", nil},
	schedulerName:         {"system:kube-scheduler", nil},
}

// makePKI makes pki/ in the cluster's folder, once: it appears whole or not at all, so that a launcher killed in
// between leaves nothing half made.
func makePKI(dir string) (err error) {
	final := filepath.Join(dir, "pki")
	if _, err := os.Stat(final); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(dir, ".pki-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	ca, err := newCA("devcluster")
	if err != nil {
		return err
	}
	// etcd's own, so that a certificate which the cluster signs does not open etcd as well.
	etcdCA, err := newCA("devcluster-etcd")
	if err != nil {
		return err
	}
	apiserver, err := ca.server(apiserverName,
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		net.ParseIP(firstServiceIP))
	if err != nil {
		return err
	}
	etcd, err := etcdCA.server(etcdName, nil)
	if err != nil {
		return err
	}
	etcdClient, err := etcdCA.client(apiserverName)
	if err != nil {
		return err
	}
	serviceAccounts, err := newPair(&x509.Certificate{Subject: pkix.Name{CommonName: "service-accounts"}}, nil)
	if err != nil {
		return err
	}
	pairs := map[string]*pair{
		"ca": ca, "etcd-ca": etcdCA, "apiserver": apiserver, "etcd": etcd, "etcd-client": etcdClient,
		"service-accounts": serviceAccounts,
	}
	for file, u := range users {
		if pairs[file], err = ca.client(u.user, u.groups...); err != nil {
			return err
		}
	}
	for file, p := range pairs {
		if err := p.write(tmp, file); err != nil {
			return err
		}
	}
	return os.Rename(tmp, final)
}

// writeKubeconfig writes a kubeconfig that holds all it needs, so that it can be copied anywhere on this machine.
func writeKubeconfig(path, dir, cluster, server, user string) error {
	pki := filepath.Join(dir, "pki")
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(filepath.Join(pki, user+".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(pki, user+".key"))
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[cluster] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := writeFile(path, data); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// writeFile replaces a file whole, so that a reader never sees half of it.
func writeFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
