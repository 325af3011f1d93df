package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// result is the outcome of a mutant.
type result struct {
	Mutant mutant
	By     string // the failed test, or ""
	Reason string // noMutant, or notReached for a survivor that no test reaches
	State  string // of the files that the result depends on
}

const (
	noMutant   = "does not compile"
	notReached = "not reached"
)

func (r result) lives() bool { return r.By == "" && r.Reason != noMutant }

type runner struct {
	out   string
	own   bool              // run only tests of the mutant's package
	tests map[string][]test // by group
}

// output runs a command in a folder and returns its output, which the error contains, too.
func output(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, text)
	}
	return string(text), nil
}

func hash(paths ...string) (string, error) {
	sum := sha256.New()
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// try compiles the mutant and runs the tests that reach it: tests of its own package first, and quick tests first.
func (r *runner) try(m mutant, tests []test) (result, error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return result{}, err
	}
	changed := filepath.Join(r.out, "mutant.go")
	text := slices.Concat(source[:m.start], []byte(m.New), source[m.end:])
	if err := os.WriteFile(changed, text, 0o666); err != nil {
		return result{}, err
	}
	from, err := filepath.Abs(m.File)
	if err != nil {
		return result{}, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{from: changed}})
	if err != nil {
		return result{}, err
	}
	replaced := filepath.Join(r.out, "overlay.json")
	if err := os.WriteFile(replaced, overlay, 0o666); err != nil {
		return result{}, err
	}
	own := filepath.ToSlash(filepath.Dir(m.File))
	if len(tests) == 0 {
		if _, err := output(".", "go", "build", "-overlay", replaced, "./"+own); err != nil {
			return result{Mutant: m, Reason: noMutant}, nil
		}
		return result{Mutant: m, Reason: notReached}, nil
	}
	binary, pkg := filepath.Join(r.out, "mutant.test"), ""
	for _, batch := range batches(tests, own) {
		if batch[0].pkg != pkg {
			pkg = batch[0].pkg
			_, err := output(".", "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", replaced, "-o", binary,
				"./"+pkg)
			if err != nil {
				return result{Mutant: m, Reason: noMutant}, nil
			}
		}
		if by := failing(binary, batch); by != "" {
			return result{Mutant: m, By: by}, nil
		}
	}
	return result{Mutant: m}, nil
}

// slow is the duration in seconds from which a test runs separately, after the others.
const slow = 2.0

// batches returns the tests in the order to run them. A batch contains tests of one package.
func batches(tests []test, own string) [][]test {
	tests = slices.Clone(tests)
	slices.SortStableFunc(tests, func(a, b test) int {
		rank := func(t test) float64 {
			if t.profile.Seconds > slow {
				return t.profile.Seconds
			} else if t.pkg == own {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.pkg, b.pkg))
	})
	var found [][]test
	for i, t := range tests {
		if i == 0 || t.pkg != tests[i-1].pkg || t.profile.Seconds > slow {
			found = append(found, nil)
		}
		found[len(found)-1] = append(found[len(found)-1], t)
	}
	return found
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failing returns the test of the batch that fails, or "". It limits time and memory, since a mutant may use any
// amount.
func failing(binary string, batch []test) string {
	pkg, names, seconds := batch[0].pkg, []string{}, 0.0
	for _, t := range batch {
		names = append(names, t.name)
		seconds += t.profile.Seconds
	}
	limit := 30*time.Second + time.Duration(8*seconds)*time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 12000000; exec "$0" "$@"`, binary, "-test.short",
		"-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir = pkg
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return pkg + " after " + limit.String()
	}
	if found := failed.FindSubmatch(text); found != nil {
		return string(found[1])
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return pkg + ": " + first
}
