package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// child is a finished child process: this program, so that a crash of onnxruntime or of a kernel ends only the child,
// or a program of the user's.
type child struct {
	code           int
	ended          string // the signal or limit that ended the program; empty if it ended by itself
	stdout, stderr string
	took           time.Duration
}

// killDelay limits the wait for the output of a killed program.
const killDelay = 2 * time.Second

// startChild runs a program until it ends or the limit passes (0: no limit). It returns an error if the program does
// not start, or the cause if ctx ends.
func startChild(ctx context.Context, limit time.Duration, c *exec.Cmd) (*child, error) {
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
	r := &child{}
	select {
	case <-done:
	case <-late:
		r.ended = fmt.Sprintf("still running after %v", limit)
		kill(c)
		<-done
	case <-ctx.Done():
		kill(c)
		<-done
		return nil, context.Cause(ctx)
	}
	r.code, r.took = c.ProcessState.ExitCode(), time.Since(start)
	r.stdout, r.stderr = stdout.String(), stderr.String()
	if signal := endedBy(c.ProcessState); signal != "" && r.ended == "" {
		r.ended = signal
	}
	return r, nil
}

// itself runs a command of this program in a child process. If the child's output lacks our name, the child crashed:
// Go's runtime exits with the code of wrong arguments when a library crashes.
func (a *app) itself(ctx context.Context, limit time.Duration, args ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if a.allowLinks {
		args = append(args, "--allow-links")
	}
	a.detail("mojo-patch %s", strings.Join(args, " "))
	c := exec.Command(program, args...)
	c.Args[0] = os.Args[0]
	r, err := startChild(ctx, limit, c)
	if err != nil {
		return nil, err
	}
	if r.ended == "" && (r.code < exitDone || r.code > exitEnvironment ||
		r.code != exitDone && r.stdout == "" && !strings.Contains("\n"+r.stderr, "\n"+ownName)) {
		r.ended = "crashed: " + crash(r.stderr)
	}
	return r, nil
}

// crash returns the line in which Go's runtime names the crash, or else the last line.
func crash(stderr string) string {
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

// failure returns the last message of a failed child as an error with the child's exit code.
func (r *child) failure() error {
	if r.ended != "" {
		return failed(errors.New(r.ended))
	}
	_, said, found := strings.Cut("\n"+r.stderr, "\n"+ownName)
	if !found {
		said = fmt.Sprintf("exit code %d\n%s", r.code, r.stderr)
	}
	return &exitError{r.code, errors.New(strings.TrimSpace(said))}
}
