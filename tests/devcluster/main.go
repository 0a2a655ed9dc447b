// Command devcluster runs real Kubernetes control planes on one machine, for tests and for the demo.
//
// One binary holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, and this launcher. The
// launcher starts each component by executing its own binary again, with the component's name as the first argument:
// the components share too much global state (flags, feature gates, metric registries, klog) to run in one process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"
)

const usage = `devcluster runs real Kubernetes clusters on this machine, on loopback only.

  devcluster up NAME [--nodes N] [--no-nodes] [--durable] [--audit] [--timeout D]
                               start NAME, or what of it is not running; prints the path of its kubeconfig
                               --durable: etcd waits for the disk, as it does in production
                               --audit: the apiserver notes each request in logs/audit.log of the cluster's folder
  devcluster down NAME... | --all
                               stop it and remove all of it
  devcluster list              the clusters, their state and their address
  devcluster kubeconfig NAME   print the path of its kubeconfig
  devcluster pause NAME        freeze its apiserver: connections open and nothing answers
  devcluster resume NAME       let it go on
  devcluster kubectl ARGS...   kubectl (also through a symlink named kubectl)

Clusters live in --state-dir, by default $ROADSTEAD_CACHE/clusters ($ROADSTEAD_CACHE: ~/.cache/roadstead).
KUBEBUILDER_ASSETS, where set, names a folder of binaries to use in place of those built in.
`

func main() {
	// A component runs until it is told to stop and has its own flags, signals and exit codes: it must be reached
	// before anything of the launcher runs.
	if runAsComponent() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

// run is one call of the launcher. Only what a script wants to read goes to out: progress goes to stderr.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return flag.ErrHelp
	}
	verb := args[0]
	flags := flag.NewFlagSet("devcluster "+verb, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	stateDir := flags.String("state-dir", "", "")
	var opts upOptions
	var all bool
	switch verb {
	case "up":
		flags.IntVar(&opts.nodes, "nodes", 2, "")
		noNodes := flags.Bool("no-nodes", false, "")
		flags.BoolVar(&opts.durable, "durable", false, "")
		flags.BoolVar(&opts.audit, "audit", false, "")
		flags.DurationVar(&opts.timeout, "timeout", 3*time.Minute, "")
		names, err := parse(flags, args[1:])
		if err != nil {
			return err
		}
		if *noNodes {
			opts.nodes = 0
		}
		c, err := oneCluster(*stateDir, names)
		if err != nil {
			return err
		}
		if err := c.up(ctx, opts); err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, c.kubeconfig())
		return err
	case "down":
		flags.BoolVar(&all, "all", false, "")
	case "list", "kubeconfig", "pause", "resume":
	case "help", "-h", "--help":
		fmt.Fprint(out, usage)
		return nil
	default:
		return fmt.Errorf("no command %q; devcluster help lists them", verb)
	}

	names, err := parse(flags, args[1:])
	if err != nil {
		return err
	}
	switch verb {
	case "down":
		parent, err := stateParent(*stateDir)
		if err != nil {
			return err
		}
		if all {
			if len(names) > 0 {
				return errors.New("down takes names or --all, not both")
			}
			if names, err = clusterNames(parent); err != nil {
				return err
			}
		} else if len(names) == 0 {
			return errors.New("down which cluster? Give a name, or --all")
		}
		var errs []error
		for _, name := range names {
			c, err := newCluster(parent, name)
			if err == nil {
				err = c.down(ctx)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	case "list":
		parent, err := stateParent(*stateDir)
		if err != nil {
			return err
		}
		return list(parent, out)
	}

	c, err := oneCluster(*stateDir, names)
	if err != nil {
		return err
	}
	switch verb {
	case "kubeconfig":
		if _, err := os.Stat(c.kubeconfig()); err != nil {
			return fmt.Errorf("there is no cluster %q; devcluster up %s makes it", c.name, c.name)
		}
		_, err = fmt.Fprintln(out, c.kubeconfig())
		return err
	case "pause":
		return c.signalAPIServer(syscall.SIGSTOP)
	default:
		return c.signalAPIServer(syscall.SIGCONT)
	}
}

// parse reads flags and names in any order: the flag package alone stops at the first name, and would take
// «up NAME --nodes 3» for three names.
func parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return names, nil
		}
		names = append(names, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

func oneCluster(stateDir string, names []string) (*cluster, error) {
	if len(names) != 1 {
		return nil, fmt.Errorf("one cluster name is needed, got %d", len(names))
	}
	parent, err := stateParent(stateDir)
	if err != nil {
		return nil, err
	}
	return newCluster(parent, names[0])
}

// stateParent is the folder that holds one folder for each cluster.
func stateParent(stateDir string) (string, error) {
	if stateDir == "" {
		cache := os.Getenv("ROADSTEAD_CACHE")
		if cache == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("neither ROADSTEAD_CACHE nor a home folder says where clusters live: %w", err)
			}
			cache = filepath.Join(home, ".cache", "roadstead")
		}
		stateDir = filepath.Join(cache, "clusters")
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", err
	}
	// One spelling, however the folder was named: it is how a cluster's processes are recognised.
	path, err := filepath.EvalSymlinks(stateDir)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

func list(parent string, out io.Writer) error {
	names, err := clusterNames(parent)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tSERVER\tKUBECONFIG")
	for _, name := range names {
		c, err := newCluster(parent, name)
		if err != nil {
			continue // a folder that is no cluster of ours
		}
		state, server := c.describe()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, state, server, c.kubeconfig())
	}
	return w.Flush()
}
