// Package process runs a command and measures its memory.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Usage is the time and memory that a process took.
type Usage struct {
	Seconds float64
	// Private is the peak memory outside of files, and Resident the peak memory of all kinds, in bytes.
	Private, Resident int64
}

// Run runs the command and samples its memory every few milliseconds. The error contains the process's stderr, unless
// it is redirected.
func Run(c *exec.Cmd) (Usage, error) {
	var stderr strings.Builder
	if c.Stderr == nil {
		c.Stderr = &stderr
	}
	u, start := Usage{}, time.Now()
	if err := c.Start(); err != nil {
		return u, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case err := <-ended:
			u.Seconds = time.Since(start).Seconds()
			switch {
			case err != nil:
				return u, fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, &stderr)
			case u.Private == 0:
				return u, errors.New("/proc does not tell the private memory of processes here")
			}
			return u, nil
		case <-time.After(2 * time.Millisecond):
			private, resident := memory(c.Process.Pid)
			u.Private, u.Resident = max(u.Private, private), max(u.Resident, resident)
		}
	}
}

// memory returns the private memory of a process, which is in no file, and its peak resident memory, in bytes.
func memory(pid int) (private, resident int64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); n == 1 {
			private = kb << 10
		} else if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			resident = kb << 10
		}
	}
	return private, resident
}
