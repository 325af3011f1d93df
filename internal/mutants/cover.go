package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// profile is what one test runs of its group's files.
type profile struct {
	Seconds float64
	Files   map[string]covered
}

// covered is the part of a file that a test runs: blocks from one line and column to another.
type covered struct {
	Hash   string // of the file; when it was edited since, a test that ran any of it is taken to run all
	Blocks [][4]int
}

// runs reports whether the test may run the place of the mutant.
func (p profile) runs(m mutant, hash string) bool {
	file, ok := p.Files[m.File]
	if !ok || file.Hash != hash {
		return ok
	}
	for _, b := range file.Blocks {
		after := m.Line > b[0] || m.Line == b[0] && m.Col >= b[1]
		before := m.Line < b[2] || m.Line == b[2] && m.Col <= b[3]
		if after && before {
			return true
		}
	}
	return false
}

// test is a test function of a package.
type test struct {
	pkg, name string
	profile   profile
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Example)`)

// profiles runs each test of a package alone, under coverage, and returns what it runs. What was found in an earlier
// run stands in out.
func (r *runner) profiles(g group, pkg string) ([]test, error) {
	binary := filepath.Join(r.out, "cover.test")
	var all []string
	for _, folder := range g.folders {
		all = append(all, "./"+folder)
	}
	if _, err := output(".", "go", "test", "-c", "-vet=off", "-cover", "-coverpkg", strings.Join(all, ","),
		"-o", binary, "./"+pkg); err != nil {
		return nil, err
	}
	names, err := output(pkg, binary, "-test.list", "^(Test|Fuzz|Example)")
	if err != nil {
		return nil, err
	}
	var tests []test
	for name := range strings.FieldsSeq(names) {
		if !testName.MatchString(name) {
			continue // that no coverage was written
		}
		p, err := r.profile(binary, pkg, name)
		if err != nil {
			return nil, err
		}
		tests = append(tests, test{pkg, name, p})
	}
	return tests, nil
}

func (r *runner) profile(binary, pkg, name string) (profile, error) {
	var p profile
	kept := filepath.Join(r.out, "profiles", filepath.FromSlash(pkg), name+".json")
	if data, err := os.ReadFile(kept); err == nil {
		return p, json.Unmarshal(data, &p)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	raw := filepath.Join(r.out, "cover.out")
	start := time.Now()
	_, err := output(pkg, binary, "-test.short", "-test.run", "^"+name+"$", "-test.coverprofile", raw)
	if err != nil {
		return p, fmt.Errorf("%s of %s fails without any mutant: %w", name, pkg, err)
	}
	p = profile{time.Since(start).Seconds(), map[string]covered{}}
	data, err := os.ReadFile(raw)
	if err != nil {
		return p, err
	}
	for line := range strings.Lines(string(data)) {
		path, place, ok := strings.Cut(strings.TrimPrefix(line, module), ":")
		var b [4]int
		var statements, count int
		if !ok || path == "mode" {
			continue
		}
		if _, err := fmt.Sscanf(place, "%d.%d,%d.%d %d %d", &b[0], &b[1], &b[2], &b[3], &statements, &count); err != nil {
			return p, fmt.Errorf("coverage of %s: %w", name, err)
		}
		if count > 0 {
			file := p.Files[path]
			file.Blocks = append(file.Blocks, b)
			p.Files[path] = file
		}
	}
	for path, file := range p.Files {
		if file.Hash, err = hash(path); err != nil {
			return p, err
		}
		p.Files[path] = file
	}
	if data, err = json.Marshal(p); err != nil {
		return p, err
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o777); err != nil {
		return p, err
	}
	return p, os.WriteFile(kept, data, 0o666)
}
