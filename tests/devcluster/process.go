// Which processes belong to a cluster, starting one so that it outlives the terminal, and ending it.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Every component is started with these two in its environment, and /proc is asked for them afterwards. That is the
// only truth about what runs: a recorded pid may have been given to another process since, and a launcher that was
// killed between starting a process and recording it would lose it.
const (
	stateMark     = "DEVCLUSTER_STATE="
	componentMark = "DEVCLUSTER_COMPONENT="
)

type process struct {
	name   string // of the component
	pid    int
	paused bool // stopped by SIGSTOP
}

// processes are the running processes of the cluster whose state is in dir. A component is one process, but an
// environment is inherited: were one of them to start another, that would be found as well.
func processes(dir string) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Of a process that is gone, a zombie, or another user's there is nothing to read: none of them is ours.
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil {
			continue
		}
		name := componentOf(environ, dir)
		if name == "" {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue
		}
		found = append(found, process{name: name, pid: pid, paused: stateOf(stat) == 'T'})
	}
	return found, nil
}

// components are the running processes of a cluster by the component that they are.
func components(dir string) (map[string]process, error) {
	all, err := processes(dir)
	byName := map[string]process{}
	for _, p := range all {
		if _, ok := byName[p.name]; !ok {
			byName[p.name] = p
		}
	}
	return byName, err
}

// componentOf is the component that an environment (as /proc gives it) marks, where it is of the cluster in dir.
func componentOf(environ []byte, dir string) string {
	var name string
	ours := false
	for _, v := range bytes.Split(environ, []byte{0}) {
		if s, ok := strings.CutPrefix(string(v), stateMark); ok {
			ours = s == dir
		} else if s, ok := strings.CutPrefix(string(v), componentMark); ok {
			name = s
		}
	}
	if !ours {
		return ""
	}
	return name
}

// stateOf is the state letter in /proc/PID/stat. It follows the command's name, which is in parentheses and may hold
// parentheses and spaces itself.
func stateOf(stat []byte) byte {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 || i+2 >= len(stat) {
		return 0
	}
	return stat[i+2]
}

// started is a component that this launcher started, so that it can see it end.
type started struct {
	name string
	pid  int
	log  string
	done chan struct{} // closed when it has ended
	err  error         // why, once done is closed
}

// start runs a component of the cluster in dir detached from this terminal, its output appended to its log.
func start(dir, name string, args []string) (*started, error) {
	path, first, err := command(name)
	if err != nil {
		return nil, err
	}
	logPath := filepath.Join(dir, "logs", name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, append(first, args...)...)
	cmd.Dir = dir
	cmd.Env = append(componentEnv(os.Environ()), stateMark+dir, componentMark+name)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &started{name: name, pid: cmd.Process.Pid, log: logPath, done: make(chan struct{})}
	go func() {
		s.err = cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

// componentEnv is the environment for a component: the caller's, without what would quietly change how one runs.
// etcd takes any flag from ETCD_*, kwok any from KWOK_*, and all clients read KUBECONFIG.
func componentEnv(environ []string) []string {
	var kept []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "ETCD_") || strings.HasPrefix(name, "KWOK_") || strings.HasPrefix(name, "DEVCLUSTER_") ||
			name == "KUBECONFIG" || name == "NOTIFY_SOCKET" {
			continue
		}
		kept = append(kept, v)
	}
	return kept
}

// stopGroup ends the named components of the cluster in dir: asks, waits, and then kills. It returns once none of them
// is left.
func stopGroup(dir string, grace time.Duration, names ...string) error {
	deadline := time.Now().Add(grace)
	asked := map[int]bool{}
	killed := false
	for {
		running, err := processes(dir)
		if err != nil {
			return err
		}
		left := 0
		for _, p := range running {
			if !slices.Contains(names, p.name) {
				continue
			}
			left++
			if time.Now().After(deadline) {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
				killed = true
			} else if !asked[p.pid] {
				asked[p.pid] = true
				_ = syscall.Kill(p.pid, syscall.SIGTERM)
				_ = syscall.Kill(p.pid, syscall.SIGCONT) // a paused one acts on the first only after this
			}
		}
		if left == 0 {
			return nil
		}
		if killed && time.Now().After(deadline.Add(10*time.Second)) {
			return errors.New("processes remain after SIGKILL: " + strings.Join(names, ", "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// tail is the end of a log, for an error message.
func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + strings.Join(all, "\n  ")
}
