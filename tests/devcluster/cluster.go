// One cluster: its folder, bringing it up, and taking it down.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cluster is one folder:
//
//	cluster.json    what was chosen when it was made (type state)
//	kubeconfig      the administrator's
//	pki/ etcd/ logs/ and a kubeconfig for each component
type cluster struct {
	name   string
	parent string
	dir    string
}

// state is cluster.json.
type state struct {
	Nodes         int       `json:"nodes"`
	APIServerPort int       `json:"apiserverPort"`
	EtcdPort      int       `json:"etcdPort"`
	EtcdPeerPort  int       `json:"etcdPeerPort"`
	Durable       bool      `json:"durable,omitempty"`
	Audit         bool      `json:"audit,omitempty"`
	Created       time.Time `json:"created"`
	// For people who read this file. What runs is asked of /proc (process.go).
	Pids map[string]int `json:"pids,omitempty"`
}

type upOptions struct {
	nodes   int
	durable bool
	audit   bool
	timeout time.Duration
}

// order is the order in which components start; they stop in the reverse.
var order = []string{etcdName, apiserverName, controllerManagerName, schedulerName, kwokName}

// A name is part of paths, of a kubeconfig's contexts and of node names.
var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

func newCluster(parent, name string) (*cluster, error) {
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("%q is no cluster name: up to 40 of a-z, 0-9 and -, not - at either end", name)
	}
	return &cluster{name: name, parent: parent, dir: filepath.Join(parent, name)}, nil
}

func clusterNames(parent string) ([]string, error) {
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && nameForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

func (c *cluster) statePath() string { return filepath.Join(c.dir, "cluster.json") }

// load reads the state; a cluster that was never made has none, which is no error.
func (c *cluster) load() (*state, error) {
	data, err := os.ReadFile(c.statePath())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseState(data)
}

func parseState(data []byte) (*state, error) {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("cluster.json: %w", err)
	}
	for _, port := range []int{s.APIServerPort, s.EtcdPort, s.EtcdPeerPort} {
		if port <= 0 || port > 65535 {
			return nil, fmt.Errorf("cluster.json: %d is no port", port)
		}
	}
	return &s, nil
}

func (c *cluster) save(s *state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.statePath(), append(data, '\n'))
}

// wanted are the components of a cluster, in the order in which they start. Without nodes there is nothing to
// schedule pods on and nobody to run them.
func (s *state) wanted() []string {
	if s.Nodes == 0 {
		return order[:3]
	}
	return order
}

func (s *state) server() string { return fmt.Sprintf("https://127.0.0.1:%d", s.APIServerPort) }

// lock keeps two launchers from working on one cluster at once. The lock's file is beside the folder, as the folder
// itself comes and goes.
func (c *cluster) lock(ctx context.Context) (unlock func(remove bool), err error) {
	if err := os.MkdirAll(c.parent, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(c.parent, "."+c.name+".lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// The holder before us may have removed the file, and another may have made a new one.
			ours, err1 := f.Stat()
			there, err2 := os.Stat(path)
			if err1 == nil && err2 == nil && os.SameFile(ours, there) {
				return func(remove bool) {
					if remove {
						_ = os.Remove(path)
					}
					_ = f.Close()
				}, nil
			}
		}
		_ = f.Close()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another devcluster works on %s: %w", c.name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// up brings the cluster to where it serves and its nodes are ready, starting what of it is not running.
func (c *cluster) up(ctx context.Context, opts upOptions) (err error) {
	if opts.nodes < 0 || opts.nodes > 1000 {
		return fmt.Errorf("%d nodes: from 0 to 1000 are possible", opts.nodes)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, opts.timeout)
	defer cancel()
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock(false)

	s, err := c.load()
	if err != nil {
		return err
	}
	running, err := components(c.dir)
	if err != nil {
		return err
	}
	if s == nil {
		s = &state{Nodes: opts.nodes, Durable: opts.durable, Audit: opts.audit,
			Created: time.Now().UTC().Truncate(time.Second)}
	}
	if err := c.prepare(ctx, s, running); err != nil {
		return err
	}

	var mine []*started
	defer func() {
		if err == nil {
			return
		}
		// Only what this call started: a component that ran before may be in use.
		var names []string
		for i := len(mine) - 1; i >= 0; i-- {
			names = append(names, mine[i].name)
		}
		if len(names) > 0 {
			if stopErr := stopGroup(c.dir, 3*time.Second, names...); stopErr != nil {
				err = errors.Join(err, stopErr)
			}
		}
	}()
	s.Pids = map[string]int{}
	for _, name := range s.wanted() {
		p, ok := running[name]
		if !ok {
			args, err := c.args(s, name)
			if err != nil {
				return err
			}
			proc, err := start(c.dir, name, args)
			if err != nil {
				return err
			}
			mine = append(mine, proc)
			p.pid = proc.pid
		} else if p.paused {
			if err := syscall.Kill(p.pid, syscall.SIGCONT); err != nil {
				return err
			}
		}
		s.Pids[name] = p.pid
		// The controllers would only ask a dead port in a loop, on cores that the apiserver needs to start.
		if name == apiserverName {
			if err := c.waitServing(ctx, mine); err != nil {
				return err
			}
		}
	}
	if err := c.save(s); err != nil {
		return err
	}
	if err := c.waitReady(ctx, s, mine); err != nil {
		return err
	}
	if len(mine) > 0 {
		logf("cluster %s is up at %s (%.1f s)", c.name, s.server(), time.Since(begin).Seconds())
	}
	return nil
}

// prepare makes the folder and all that components read from it, and chooses ports where none are chosen or another
// process has taken one of a component that is down.
func (c *cluster) prepare(ctx context.Context, s *state, running map[string]process) error {
	if err := os.MkdirAll(filepath.Join(c.dir, "logs"), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(c.dir, 0o700); err != nil {
		return err
	}
	if err := makePKI(c.dir); err != nil {
		return err
	}
	_, etcdUp := running[etcdName]
	_, apiserverUp := running[apiserverName]
	free := s.APIServerPort != 0 &&
		(etcdUp || portFree(s.EtcdPort) && portFree(s.EtcdPeerPort)) &&
		(apiserverUp || portFree(s.APIServerPort))
	if !free {
		if len(running) > 0 { // they speak to ports that are about to change
			if err := stopGroup(c.dir, 3*time.Second, order...); err != nil {
				return err
			}
			clear(running)
		}
		if err := c.choosePorts(ctx, s); err != nil {
			return err
		}
	}
	if err := writeKubeconfig(c.kubeconfig(), c.dir, c.name, s.server(), "admin"); err != nil {
		return err
	}
	if s.Audit {
		if err := writeFile(c.auditPolicy(), []byte(auditPolicy)); err != nil {
			return err
		}
	}
	for _, name := range []string{controllerManagerName, schedulerName, kwokName} {
		path := filepath.Join(c.dir, name+".kubeconfig")
		if err := writeKubeconfig(path, c.dir, c.name, s.server(), name); err != nil {
			return err
		}
	}
	return nil
}

// choosePorts picks the ports and saves them, under a lock of all clusters: two that start at once must not pick the
// same, and a cluster that is down keeps those it has.
func (c *cluster) choosePorts(ctx context.Context, s *state) error {
	all := &cluster{name: "_ports", parent: c.parent} // a name that no cluster can have
	unlock, err := all.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock(true)
	taken := map[int]bool{}
	names, err := clusterNames(c.parent)
	if err != nil {
		return err
	}
	for _, name := range names {
		other := &cluster{name: name, parent: c.parent, dir: filepath.Join(c.parent, name)}
		if o, err := other.load(); err == nil && o != nil && name != c.name {
			taken[o.APIServerPort], taken[o.EtcdPort], taken[o.EtcdPeerPort] = true, true, true
		}
	}
	ports, err := freePorts(3, taken)
	if err != nil {
		return err
	}
	s.APIServerPort, s.EtcdPort, s.EtcdPeerPort = ports[0], ports[1], ports[2]
	return c.save(s)
}

// down stops the cluster and removes its folder. A cluster that is not there is down already.
func (c *cluster) down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock(true)
	// Clients first, so that they do not fill the last seconds with complaints; the data is thrown away, so nobody
	// needs long to leave.
	for _, group := range [][]string{{kwokName, schedulerName, controllerManagerName}, {apiserverName}, {etcdName}} {
		if err := stopGroup(c.dir, 3*time.Second, group...); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.dir)
}

func (c *cluster) signalAPIServer(signal syscall.Signal) error {
	running, err := components(c.dir)
	if err != nil {
		return err
	}
	p, ok := running[apiserverName]
	if !ok {
		return fmt.Errorf("the apiserver of %s is not running", c.name)
	}
	return syscall.Kill(p.pid, signal)
}

// describe is the cluster in two words, for list.
func (c *cluster) describe() (status, server string) {
	s, err := c.load()
	if err != nil || s == nil {
		return "broken", "-"
	}
	running, err := components(c.dir)
	if err != nil {
		return "unknown", s.server()
	}
	var missing []string
	for _, name := range s.wanted() {
		if _, ok := running[name]; !ok {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == len(s.wanted()):
		return "stopped", s.server()
	case len(missing) > 0:
		slices.Sort(missing)
		return "without " + strings.Join(missing, ","), s.server()
	case running[apiserverName].paused:
		return "paused", s.server()
	}
	return "up", s.server()
}
