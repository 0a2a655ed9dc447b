// The components in this binary, and how one of them becomes this process.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	_ "time/tzdata" // CronJobs name time zones, and a slim machine has no zone files

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plugins for kubectl
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as upstream's main does
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const (
	etcdName              = "etcd"
	apiserverName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
	schedulerName         = "kube-scheduler"
	kubectlName           = "kubectl"
	kwokName              = "kwok" // a binary of its own, beside this one
)

// builtIn are the components that this binary can be. Each reads os.Args as its own command line.
var builtIn = map[string]func() int{
	etcdName:              func() int { etcdmain.Main(os.Args); return 0 },
	apiserverName:         func() int { return cobraMain(apiserver.NewAPIServerCommand()) },
	controllerManagerName: func() int { return cobraMain(controllermanager.NewControllerManagerCommand()) },
	schedulerName:         func() int { return cobraMain(scheduler.NewSchedulerCommand()) },
	kubectlName:           runKubectl,
}

func cobraMain(cmd *cobra.Command) int { return cli.Run(cmd) }

func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // as upstream's main does
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it, and exits as kubectl does
	}
	return 0
}

// runAsComponent makes this process the component that its name (a symlink) or its first argument asks for, and is
// false when neither names one. It returns only then, or when kubectl is done.
func runAsComponent() bool {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, ok := builtIn[name]; !ok {
		if len(args) == 0 {
			return false
		}
		name, args = args[0], args[1:]
	}
	main, ok := builtIn[name]
	if !ok {
		return false
	}
	// Only kubectl is called by people: the launcher has chosen the binary of the others before it started them.
	if name == kubectlName {
		if path := fromAssets(name); path != "" {
			err := syscall.Exec(path, append([]string{name}, args...), os.Environ())
			fmt.Fprintf(os.Stderr, "devcluster: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
	os.Args = append([]string{name}, args...)
	os.Exit(main())
	return true
}

// fromAssets is the path of the binary that KUBEBUILDER_ASSETS has for a component, and empty when it has none.
func fromAssets(name string) string {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		return ""
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return ""
	}
	return path
}

// command is what to execute to get a component: the binary and the arguments before the component's own.
func command(name string) (path string, first []string, err error) {
	if path := fromAssets(name); path != "" {
		return path, nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	if name != kwokName {
		return self, []string{name}, nil
	}
	path = filepath.Join(filepath.Dir(self), kwokName)
	if _, err := os.Stat(path); err != nil {
		return "", nil, fmt.Errorf("kwok is not beside %s: build both with build.sh, or use --no-nodes", self)
	}
	return path, nil, nil
}
