// Package process runs a command and looks at its memory.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Usage is what a process took.
type Usage struct {
	Seconds float64
	// Private is the most memory in no file that it had at a time, and Resident the most memory of all kinds, in bytes.
	Private, Resident int64
}

// Run runs the command in a process of its own and looks at its memory every few milliseconds. The error has what the
// process wrote to stderr, unless that goes elsewhere.
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

// memory returns the private memory of a process, which is in no file, and the most that was resident, in bytes.
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
