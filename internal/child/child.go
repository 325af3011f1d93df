// Package child runs programs to their end, within a limit of time, and says how they ended.
package child

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Process is a finished child process: this program, so that a crash of onnxruntime or of a kernel ends only the child,
// or a program of the user's.
type Process struct {
	Code           int           // its exit code
	Ended          string        // the signal or limit that ended the program; empty if it ended by itself
	Stdout, Stderr string        // its output
	Took           time.Duration // from its start to its end
}

// killDelay limits the wait for the output of a killed program.
const killDelay = 2 * time.Second

// Run runs a program until it ends or the limit passes (0: no limit). It returns an error if the program does not
// start, or the cause if ctx ends.
func Run(ctx context.Context, limit time.Duration, c *exec.Cmd) (*Process, error) {
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	c.WaitDelay = killDelay
	isolate(c)
	start := time.Now()
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Path, err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	var late <-chan time.Time
	if limit > 0 {
		late = time.After(limit)
	}
	r := &Process{}
	select {
	case <-done:
	case <-late:
		r.Ended = fmt.Sprintf("still running after %v", limit)
		kill(c)
		<-done
	case <-ctx.Done():
		kill(c)
		<-done
		return nil, context.Cause(ctx)
	}
	r.Code, r.Took = c.ProcessState.ExitCode(), time.Since(start)
	r.Stdout, r.Stderr = stdout.String(), stderr.String()
	if signal := endedBy(c.ProcessState); signal != "" && r.Ended == "" {
		r.Ended = signal
	}
	return r, nil
}

// Crash returns the line in which Go's runtime names the crash, or else the last line.
func Crash(stderr string) string {
	last := "it printed nothing"
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"SIG", "fatal error: ", "panic: "} {
			if strings.HasPrefix(line, prefix) {
				return line
			}
		}
		if line != "" {
			last = line
		}
	}
	return last
}
