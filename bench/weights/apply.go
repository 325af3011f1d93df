package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

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

// load opens a model in onnxruntime and prints the seconds it took.
func load(path string) error {
	start := time.Now()
	s, err := ort.Open(path, ort.WithKernels())
	if err != nil {
		return err
	}
	fmt.Println(time.Since(start).Seconds())
	return s.Close()
}

// loadTime says how long a new process needs to open a model: the least time of three, but for a model that takes long.
func loadTime(path string, patience time.Duration) (string, error) {
	const long = 20 // seconds
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	least := math.Inf(1)
	for i := 0; i < 3 && (i == 0 || least < long); i++ {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c := exec.CommandContext(ctx, self, "-load", path)
		c.Stderr = os.Stderr
		out, err := c.Output()
		switch {
		case ctx.Err() != nil:
			return fmt.Sprintf("more than %v", patience), nil
		case err != nil:
			return "", fmt.Errorf("cannot open %s: %w", path, err)
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			return "", err
		}
		least = min(least, seconds)
	}
	return fmt.Sprintf("%.3g s", least), nil
}
