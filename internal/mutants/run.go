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

// result is what became of a mutant.
type result struct {
	Mutant mutant
	By     string // the test that failed; "" when none did
	Reason string // of a survivor: "not reached", or "" when tests ran it
	State  string // of the files that the result depends on
}

type runner struct {
	out   string
	tests map[string][]test // by group, those of the package itself and those above it
}

// output runs a command in a folder and returns what it prints; the error of one that fails has that.
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

// try compiles the mutant and runs the tests that reach it, its own package's before the others, the quick ones first.
// It reports false for a mutant that does not compile.
func (r *runner) try(m mutant, tests []test) (result, bool, error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return result{}, false, err
	}
	changed := filepath.Join(r.out, "mutant.go")
	text := slices.Concat(source[:m.start], []byte(m.New), source[m.end:])
	if err := os.WriteFile(changed, text, 0o666); err != nil {
		return result{}, false, err
	}
	from, err := filepath.Abs(m.File)
	if err != nil {
		return result{}, false, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{from: changed}})
	if err != nil {
		return result{}, false, err
	}
	replaced := filepath.Join(r.out, "overlay.json")
	if err := os.WriteFile(replaced, overlay, 0o666); err != nil {
		return result{}, false, err
	}
	own := filepath.ToSlash(filepath.Dir(m.File))
	if len(tests) == 0 {
		_, err := output(".", "go", "build", "-overlay", replaced, "./"+own)
		return result{Mutant: m, Reason: "not reached"}, err == nil, nil
	}
	binary, pkg := filepath.Join(r.out, "mutant.test"), ""
	for _, batch := range batches(tests, own) {
		if batch[0].pkg != pkg {
			pkg = batch[0].pkg
			_, err := output(".", "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", replaced, "-o", binary,
				"./"+pkg)
			if err != nil {
				return result{}, false, nil
			}
		}
		if by := failing(binary, batch); by != "" {
			return result{Mutant: m, By: by}, true, nil
		}
	}
	return result{Mutant: m}, true, nil
}

// slow is how long a test takes, in seconds, that runs alone and after the others.
const slow = 2.0

// batches returns the tests in the order to run them: a batch is of one package.
func batches(tests []test, own string) [][]test {
	tests = slices.Clone(tests)
	slices.SortStableFunc(tests, func(a, b test) int {
		late := func(t test) float64 { return max(t.profile.Seconds, slow) }
		return cmp.Or(cmp.Compare(late(a), late(b)), cmp.Compare(btoi(a.pkg != own), btoi(b.pkg != own)),
			cmp.Compare(a.pkg, b.pkg))
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

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failing returns the test of the batch that fails, "" when none does. A mutant may take any time and memory: both are
// bounded.
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
