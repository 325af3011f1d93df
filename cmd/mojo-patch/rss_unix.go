//go:build linux || darwin

package main

import (
	"runtime"
	"syscall"
)

// peakRSS returns the most memory this process held so far, in bytes; 0 when it is not known.
func peakRSS() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "linux" {
		return int64(u.Maxrss) * 1024
	}
	return int64(u.Maxrss)
}
