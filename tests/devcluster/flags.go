// The command lines of the components.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	serviceCIDR    = "10.96.0.0/16"
	firstServiceIP = "10.96.0.1" // of the Service «kubernetes»: the apiserver's certificate names it
)

// offControllers have nothing to do here and would only watch: no cloud, no volumes that anybody attaches, no node
// networks, no devices. Everything that a manifest in a test could lean on stays on.
var offControllers = []string{
	"node-ipam-controller",
	"persistentvolume-attach-detach-controller",
	"persistentvolume-expander-controller",
	"ephemeral-volume-controller",
	"resourceclaim-controller",
	"device-taint-eviction-controller",
	"ttl-controller",
	"legacy-serviceaccount-token-cleaner-controller",
	"certificatesigningrequest-cleaner-controller",
	"podcertificaterequest-cleaner-controller",
}

// auditPolicy has each request noted when it is answered (a watch when it begins, too): who asked for what, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func (c *cluster) auditPolicy() string { return filepath.Join(c.dir, "audit-policy.yaml") }

// args is the command line of a component, after what selects it.
func (c *cluster) args(s *state, name string) ([]string, error) {
	pki := func(file string) string { return filepath.Join(c.dir, "pki", file) }
	kubeconfig := "--kubeconfig=" + filepath.Join(c.dir, name+".kubeconfig")
	etcdURL := fmt.Sprintf("https://127.0.0.1:%d", s.EtcdPort)
	switch name {
	case etcdName:
		peerURL := fmt.Sprintf("https://127.0.0.1:%d", s.EtcdPeerPort)
		args := []string{
			"--name=" + c.name,
			"--data-dir=" + filepath.Join(c.dir, "etcd"),
			"--listen-client-urls=" + etcdURL,
			"--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=" + c.name + "=" + peerURL,
			// Without these anyone on this machine could read every Secret, past the apiserver.
			"--client-cert-auth", "--trusted-ca-file=" + pki("etcd-ca.crt"),
			"--cert-file=" + pki("etcd.crt"), "--key-file=" + pki("etcd.key"),
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + pki("etcd-ca.crt"),
			"--peer-cert-file=" + pki("etcd.crt"), "--peer-key-file=" + pki("etcd.key"),
			"--log-level=error", // a warning for each connection that a starting apiserver drops hides what matters
		}
		if !s.Durable {
			// A test's cluster does not outlive a power failure, and on a slow disk fsync is most of a write's time. A
			// kill -9 loses nothing: what was written is with the kernel.
			args = append(args, "--unsafe-no-fsync")
		}
		return args, nil
	case apiserverName:
		args := []string{
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", s.APIServerPort),
			// The endpoints of the Service «kubernetes» may not be loopback addresses, and nothing here would use them.
			"--endpoint-reconciler-type=none",
			"--authorization-mode=Node,RBAC",
			"--anonymous-auth=false", // health is asked for with the administrator's certificate
			"--client-ca-file=" + pki("ca.crt"),
			"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--etcd-servers=" + etcdURL,
			"--etcd-cafile=" + pki("etcd-ca.crt"),
			"--etcd-certfile=" + pki("etcd-client.crt"), "--etcd-keyfile=" + pki("etcd-client.key"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki("service-accounts.key"),
			"--service-account-signing-key-file=" + pki("service-accounts.key"),
			"--service-cluster-ip-range=" + serviceCIDR,
			"--allow-privileged=true",
			// The bench asks for a collection of garbage before it looks at memory.
			"--profiling=true",
		}
		if s.Audit {
			args = append(args, "--audit-policy-file="+c.auditPolicy(),
				"--audit-log-path="+filepath.Join(c.dir, "logs", "audit.log"))
		}
		return args, nil
	case controllerManagerName:
		return []string{
			kubeconfig,
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + pki("service-accounts.key"),
			"--root-ca-file=" + pki("ca.crt"),
			"--cluster-signing-cert-file=" + pki("ca.crt"), "--cluster-signing-key-file=" + pki("ca.key"),
			"--controllers=*,-" + strings.Join(offControllers, ",-"),
			"--kube-api-qps=300", "--kube-api-burst=600",
			"--leader-elect=false",
			// Nodes here never die, but the apiserver may be paused and the machine suspended: a node that was silent
			// for an hour must not lose its pods.
			"--node-monitor-grace-period=8760h", "--node-startup-grace-period=8760h", "--node-monitor-period=30s",
			"--secure-port=0", "--profiling=false",
		}, nil
	case schedulerName:
		return []string{
			kubeconfig,
			"--kube-api-qps=300", "--kube-api-burst=600",
			"--leader-elect=false",
			"--secure-port=0", "--profiling=false",
		}, nil
	case kwokName:
		path, _, err := command(name)
		if err != nil {
			return nil, err
		}
		stages := filepath.Join(filepath.Dir(path), "stages.yaml")
		if _, err := os.Stat(stages); err != nil {
			return nil, fmt.Errorf("kwok's stages are not beside it: %w", err)
		}
		return []string{
			kubeconfig,
			"--config=" + stages,
			"--manage-all-nodes=true",
			// Renewed at a quarter of this. Nobody acts on a late one (see the grace period above), so seldom is enough.
			"--node-lease-duration-seconds=1200",
			"--node-port=0", // otherwise it serves on every address of the machine
		}, nil
	}
	return nil, fmt.Errorf("no component %q", name)
}
