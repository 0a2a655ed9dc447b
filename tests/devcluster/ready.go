// When is a cluster ready?

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
)

// poll asks again and again until check is content, a component that this call started ends, or time is up.
func poll(ctx context.Context, procs []*started, what string, check func(context.Context) error) error {
	for {
		askCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := check(askCtx)
		cancel()
		if err == nil {
			return nil
		}
		for _, p := range procs {
			select {
			case <-p.done:
				reason := "ended"
				if p.err != nil {
					reason = p.err.Error()
				}
				return fmt.Errorf("%s: %s. The end of %s:\n%s", p.name, reason, p.log, tail(p.log, 15))
			default:
			}
		}
		select {
		case <-ctx.Done():
			msg := fmt.Sprintf("gave up waiting for %s: %v", what, err)
			for _, p := range procs {
				msg += fmt.Sprintf("\nThe end of %s:\n%s", p.log, tail(p.log, 5))
			}
			return errors.New(msg)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *cluster) client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 200
	return kubernetes.NewForConfig(config)
}

// waitServing waits until the apiserver says that it is ready.
func (c *cluster) waitServing(ctx context.Context, procs []*started) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return poll(ctx, procs, "the apiserver", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// waitReady waits until a client finds what it may expect of a cluster: pods can be made in the namespace «default»,
// and there are nodes to run them.
func (c *cluster) waitReady(ctx context.Context, s *state, procs []*started) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	for i := range s.Nodes {
		if err := poll(ctx, procs, "making a node", func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}); err != nil {
			return err
		}
	}
	return poll(ctx, procs, "the service account and the nodes", func(ctx context.Context) error {
		if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: nodeLabel})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range nodes.Items {
			if nodeReady(&n) {
				ready++
			}
		}
		if ready < s.Nodes {
			return fmt.Errorf("%d of %d nodes are ready", ready, s.Nodes)
		}
		return nil
	})
}

// nodeLabel marks the nodes that «up» made: a user may add and remove others.
const nodeLabel = "devcluster.roadstead.dev/node"

// node is the i-th node. kwok fills in its status.
func node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	size := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("4000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				nodeLabel:              "",
				corev1.LabelHostname:   name,
				corev1.LabelArchStable: "amd64",
				corev1.LabelOSStable:   "linux",
			},
		},
		// Each node its own addresses, or pods of two nodes would have the same; room for 4094 pods.
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.%d.%d.0/20", 100+i/16, i%16*16)},
		Status: corev1.NodeStatus{
			Capacity:    size,
			Allocatable: size,
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: version.Get().GitVersion},
		},
	}
}

// nodeReady is whether pods are scheduled to a node now: it says so itself, and the node lifecycle controller has
// taken notice and removed the taint that every new node has.
func nodeReady(n *corev1.Node) bool {
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }) {
		return false
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
