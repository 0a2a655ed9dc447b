// Tests of the launcher's parts that need no running cluster; smoke.sh tests the rest.

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func TestFlagsAndNamesInAnyOrder(t *testing.T) {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	nodes := flags.Int("nodes", 2, "")
	names, err := parse(flags, []string{"a", "--nodes", "5", "b"})
	if err != nil || *nodes != 5 || !slices.Equal(names, []string{"a", "b"}) {
		t.Fatalf("got %v, %d nodes, %v", names, *nodes, err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "demo-1": true, strings.Repeat("a", 40): true,
		"": false, "-a": false, "a-": false, "A": false, "a/b": false, "..": false, ".ports": false,
		strings.Repeat("a", 41): false, "a\n": false,
	} {
		if _, err := newCluster("/nowhere", name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPortRange(t *testing.T) {
	for in, want := range map[string][2]int{
		"32768\t60999\n": {20000, 32768},
		"":               {20000, 32768},
		"1024 65535":     {20000, 60000},
	} {
		if low, high := portRange(in); low != want[0] || high != want[1] {
			t.Errorf("%q: %d to %d", in, low, high)
		}
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := freePorts(50, nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 50 {
		t.Error("a port was given twice")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if portFree(l.Addr().(*net.TCPAddr).Port) {
		t.Error("a port that is listened on counts as free")
	}
}

func TestPKI(t *testing.T) {
	dir := t.TempDir()
	if err := makePKI(dir); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := makePKI(dir); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "pki", "ca.crt")); !bytes.Equal(before, after) {
		t.Error("the second call made another CA: the kubeconfigs in use would be worthless")
	}
	entries, err := os.ReadDir(filepath.Join(dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, _ := e.Info(); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}

	path := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(path, dir, "demo", "https://127.0.0.1:1", "admin"); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:1" || len(config.KeyData) == 0 {
		t.Errorf("a kubeconfig for %q with %d bytes of key", config.Host, len(config.KeyData))
	}
}

func TestCertificates(t *testing.T) {
	ca, err := newCA("ca")
	if err != nil {
		t.Fatal(err)
	}
	other, err := newCA("other")
	if err != nil {
		t.Fatal(err)
	}
	server, err := ca.server("server", []string{"kubernetes"}, net.ParseIP(firstServiceIP))
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.client("someone", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	for _, name := range []string{"127.0.0.1", "localhost", "kubernetes", firstServiceIP} {
		if _, err := server.cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := client.cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: usage}); err != nil {
		t.Error(err)
	}
	if _, err := client.cert.Verify(x509.VerifyOptions{Roots: pool}); err == nil {
		t.Error("a client's certificate passes for a server's")
	}
	foreign := x509.NewCertPool()
	foreign.AddCert(other.cert)
	if _, err := client.cert.Verify(x509.VerifyOptions{Roots: foreign, KeyUsages: usage}); err == nil {
		t.Error("another CA's certificate is accepted")
	}
}

func TestParseState(t *testing.T) {
	good := `{"nodes": 2, "apiserverPort": 20001, "etcdPort": 20002, "etcdPeerPort": 20003}`
	s, err := parseState([]byte(good))
	if err != nil || s.server() != "https://127.0.0.1:20001" || len(s.wanted()) != 5 {
		t.Fatalf("%+v, %v", s, err)
	}
	s.Nodes = 0
	if slices.Contains(s.wanted(), kwokName) || slices.Contains(s.wanted(), schedulerName) {
		t.Error("without nodes there is nothing to schedule")
	}
	for _, bad := range []string{``, `{}`, `[]`, strings.Replace(good, "20001", "70000", 1)} {
		if _, err := parseState([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestComponentOf(t *testing.T) {
	environ := []byte("PATH=/bin\x00DEVCLUSTER_STATE=/c/a\x00DEVCLUSTER_COMPONENT=etcd\x00")
	if name := componentOf(environ, "/c/a"); name != "etcd" {
		t.Errorf("got %q", name)
	}
	for _, dir := range []string{"/c/b", "/c", "/c/a/"} {
		if name := componentOf(environ, dir); name != "" {
			t.Errorf("%s: got %q", dir, name)
		}
	}
}

func TestStateOf(t *testing.T) {
	if s := stateOf([]byte("12 (a) S) T 1 12")); s != 'T' {
		t.Errorf("got %q", s)
	}
	if s := stateOf([]byte("12 (a")); s != 0 {
		t.Errorf("got %q", s)
	}
}

func TestComponentEnv(t *testing.T) {
	got := componentEnv([]string{"A=1", "ETCD_NAME=x", "KUBECONFIG=y", "KUBEBUILDER_ASSETS=z", "DEVCLUSTER_STATE=s"})
	if !slices.Equal(got, []string{"A=1", "KUBEBUILDER_ASSETS=z"}) {
		t.Errorf("got %v", got)
	}
}

// A process is found by its environment, and only where it is of this cluster; one that ignores SIGTERM is killed.
func TestStopGroup(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo ready; while :; do sleep 1; done`)
	cmd.Env = append(os.Environ(), stateMark+dir, componentMark+etcdName)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go cmd.Wait() //nolint:errcheck // it is killed
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if found, err := processes(t.TempDir()); err != nil || len(found) != 0 {
		t.Fatalf("another cluster has %v, %v", found, err)
	}
	found, err := processes(dir)
	if err != nil || len(found) == 0 || found[0].name != etcdName {
		t.Fatalf("found %v, %v", found, err)
	}
	if err := stopGroup(dir, 200*time.Millisecond, etcdName); err != nil {
		t.Fatal(err)
	}
	if found, _ := processes(dir); len(found) != 0 {
		t.Errorf("left: %v", found)
	}
}

func TestLock(t *testing.T) {
	c, err := newCluster(t.TempDir(), "a")
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := c.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.lock(short); err == nil {
		t.Fatal("two hold the lock")
	}
	unlock(true)
	unlock, err = c.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	unlock(true)
	if left, _ := os.ReadDir(c.parent); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestFromAssets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	if err := os.WriteFile(filepath.Join(dir, etcdName), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, kubectlName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := fromAssets(etcdName); got != filepath.Join(dir, etcdName) {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{kubectlName, apiserverName} {
		if got := fromAssets(name); got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// A flag that one of the servers listens by must name loopback.
func TestComponentsListenOnLoopbackOnly(t *testing.T) {
	c, err := newCluster("/parent", "a")
	if err != nil {
		t.Fatal(err)
	}
	s := &state{Nodes: 1, APIServerPort: 1, EtcdPort: 2, EtcdPeerPort: 3}
	for _, name := range order[:4] {
		args, err := c.args(s, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range args {
			if (strings.Contains(arg, "listen") || strings.Contains(arg, "bind-address")) && !strings.Contains(arg, "127.0.0.1") {
				t.Errorf("%s: %s", name, arg)
			}
		}
	}
}
