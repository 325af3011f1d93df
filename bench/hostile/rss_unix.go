//go:build unix

package main

import (
	"os"
	"syscall"
)

// maxRSS returns the process's peak memory in bytes.
func maxRSS(s *os.ProcessState) int64 {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10 // Linux counts kilobytes
	}
	return 0
}
