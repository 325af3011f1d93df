package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/bench/internal/process"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

type applied struct {
	report  rewrite.Report
	private int64 // peak private memory in bytes
	seconds float64
}

// apply runs the tool in a separate process.
func apply(tool, in, out string) (*applied, error) {
	var stdout strings.Builder
	c := exec.Command(tool, "apply", in, "-o", out, "--json", "--require")
	c.Stdout = &stdout
	u, err := process.Run(c)
	if err != nil {
		return nil, err
	}
	r := &applied{private: u.Private, seconds: u.Seconds}
	return r, json.Unmarshal([]byte(stdout.String()), &r.report)
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

// loadTime measures how long a new process takes to open a model: the least time of three, or a single long one.
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
