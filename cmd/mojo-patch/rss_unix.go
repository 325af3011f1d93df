//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// peakRSS returns the most memory this process held so far, in bytes; 0 when it is not known. Linux counts in getrusage
// what the process that started this one held at that moment, Python with a model say; its status file does not.
func peakRSS() int64 {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		_, line, _ := strings.Cut(string(status), "VmHWM:")
		var kilobytes int64
		if _, err := fmt.Sscan(line, &kilobytes); err == nil {
			return kilobytes * 1024
		}
	}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "linux" {
		return int64(u.Maxrss) * 1024
	}
	return int64(u.Maxrss)
}
