// Choosing ports on loopback.

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// Ports are chosen below the range that the kernel takes for outgoing connections: a port that it hands out («listen on
// 0») can be taken by any connection of any process before the server which it is for binds it, and again whenever
// that server is down.
const lowestPort = 20000

// portRange is where to choose from: between lowestPort and the kernel's own range.
func portRange(kernelRange string) (low, high int) {
	low, high = lowestPort, 32768
	if fields := strings.Fields(kernelRange); len(fields) == 2 {
		if n, err := strconv.Atoi(fields[0]); err == nil {
			high = n
		}
	}
	if high-low < 1000 { // a machine with other settings: no room below, so take the risk
		return lowestPort, 60000
	}
	return low, high
}

// freePorts are n different ports that nothing listens on and that are not in taken.
func freePorts(n int, taken map[int]bool) ([]int, error) {
	kernelRange, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	low, high := portRange(string(kernelRange))
	var ports []int
	chosen := map[int]bool{}
	for tries := 0; len(ports) < n; tries++ {
		if tries > 1000 {
			return nil, fmt.Errorf("no free port found between %d and %d", low, high)
		}
		port := low + rand.IntN(high-low)
		if taken[port] || chosen[port] || !portFree(port) {
			continue
		}
		chosen[port] = true
		ports = append(ports, port)
	}
	return ports, nil
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
