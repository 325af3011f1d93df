//go:build linux || darwin

package cli

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// PeakRSS returns this process's peak memory in bytes, or 0 if it is unknown. It prefers the status file: on Linux,
// getrusage includes the memory that the parent process held at the start, such as Python with a model.
func PeakRSS() int64 {
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
