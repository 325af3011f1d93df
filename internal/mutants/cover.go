package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// profile is a test's coverage of its group's files.
type profile struct {
	Hash    string // of the file that declares the test
	Seconds float64
	Files   map[string]covered
}

// covered is the part of a file that a test runs: blocks from one line and column to another.
type covered struct {
	Hash   string // of the file; if it changed since, a test that ran any of it counts as running all
	Blocks [][4]int
}

// runs reports whether the test may run the mutant's place.
func (p profile) runs(m mutant, hash string) bool {
	file, ok := p.Files[m.File]
	if m.anywhere || !ok || file.Hash != hash {
		return m.anywhere || ok
	}
	for _, b := range file.Blocks {
		after := m.block[0] > b[0] || m.block[0] == b[0] && m.block[1] >= b[1]
		before := m.block[0] < b[2] || m.block[0] == b[2] && m.block[1] <= b[3]
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

// profiles returns the tests of a package with their coverage of the group's files.
func (r *runner) profiles(g group, pkg string) ([]test, error) {
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var tests []test
	compiled := false
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		declared, err := hash(file)
		if err != nil {
			return nil, err
		}
		for _, found := range testName.FindAllSubmatch(source, -1) {
			t := test{pkg: pkg, name: string(found[1])}
			kept := filepath.Join(r.out, "profiles", filepath.FromSlash(pkg), t.name+".json")
			data, err := os.ReadFile(kept)
			if err == nil {
				err = json.Unmarshal(data, &t.profile)
			}
			if err != nil || t.profile.Hash != declared {
				if !compiled {
					if err := r.compileCover(g, pkg); err != nil {
						return nil, err
					}
					compiled = true
				}
				if t.profile, err = r.profile(pkg, t.name); err != nil {
					return nil, err
				}
				t.profile.Hash = declared
				if err := writeJSON(kept, t.profile); err != nil {
					return nil, err
				}
			}
			tests = append(tests, t)
		}
	}
	return tests, nil
}

var testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(\w*(?: \*testing\.[TF])?\)`)

func (r *runner) compileCover(g group, pkg string) error {
	log.Printf("coverage of the tests of %s", pkg)
	var all []string
	for _, folder := range g.folders {
		all = append(all, "./"+folder)
	}
	_, err := output(".", "go", "test", "-c", "-vet=off", "-cover", "-coverpkg", strings.Join(all, ","),
		"-o", filepath.Join(r.out, "cover.test"), "./"+pkg)
	return err
}

// profile runs a single test with coverage.
func (r *runner) profile(pkg, name string) (profile, error) {
	var p profile
	raw := filepath.Join(r.out, "cover.out")
	start := time.Now()
	_, err := output(pkg, filepath.Join(r.out, "cover.test"), "-test.short", "-test.run", "^"+name+"$",
		"-test.coverprofile", raw)
	if err != nil {
		return p, fmt.Errorf("%s of %s fails without any mutant: %w", name, pkg, err)
	}
	p = profile{Seconds: time.Since(start).Seconds(), Files: map[string]covered{}}
	data, err := os.ReadFile(raw)
	if err != nil {
		return p, err
	}
	for line := range strings.Lines(string(data)) {
		path, place, ok := strings.Cut(strings.TrimPrefix(line, module), ":")
		var b [4]int
		var n, count int
		if !ok || path == "mode" {
			continue
		}
		_, err := fmt.Sscanf(place, "%d.%d,%d.%d %d %d", &b[0], &b[1], &b[2], &b[3], &n, &count)
		if err != nil {
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
	return p, nil
}

func writeJSON(path string, x any) error {
	data, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}
