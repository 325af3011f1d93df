package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/rewrite"
)

// applied is one run of apply.
type applied struct {
	report  rewrite.Report
	private int64 // the most private memory it had at a time, in bytes
	seconds float64
}

// apply runs the tool in a process of its own and looks at its memory every few milliseconds.
func apply(tool, in, out string) (*applied, error) {
	var stdout, stderr strings.Builder
	c := exec.Command(tool, "apply", in, "-o", out, "--json", "--require")
	c.Stdout, c.Stderr = &stdout, &stderr
	start := time.Now()
	if err := c.Start(); err != nil {
		return nil, err
	}
	r := &applied{}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case err := <-ended:
			r.seconds = time.Since(start).Seconds()
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, &stderr)
			}
			if r.private == 0 {
				return nil, errors.New("/proc does not tell the private memory of processes here")
			}
			return r, json.Unmarshal([]byte(stdout.String()), &r.report)
		case <-time.After(2 * time.Millisecond):
			r.private = max(r.private, private(c.Process.Pid))
		}
	}
}

// private returns the private memory of a process in bytes: what is in no file.
func private(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}
