//go:build unix

// Command reliability tests the promises of docs/reliability.md about the files that mojo-patch writes: it kills apply
// at random moments, fills the disk, names outputs that cannot be written, applies twice, and applies to thousands of
// small models that other tools wrote.
//
//	go run ./bench/reliability -tool build/mojo-patch [-kills 200] [-only REGEXP] [-node-tests DIR] models
//
// It prints a table in Markdown, and exits with 1 if a promise is broken.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"
)

func main() {
	b := &bench{}
	flag.StringVar(&b.tool, "tool", "build/mojo-patch", "the `program`")
	flag.IntVar(&b.kills, "kills", 200, "how often apply is killed")
	flag.StringVar(&b.nodeTests, "node-tests", os.Getenv("MOJO_ONNX_NODE_TESTS"),
		"`folder` of the ONNX node tests (default: skip this part)")
	flag.Uint64Var(&b.seed, "seed", uint64(time.Now().UnixNano()), "of the random moments")
	only := flag.String("only", "", "parts whose name matches this `regexp`")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: reliability [flags] MODELS")
		os.Exit(2)
	}
	b.models = flag.Arg(0)
	ok, err := b.run(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reliability:", err)
		os.Exit(4)
	}
	if !ok {
		os.Exit(1)
	}
}

type bench struct {
	tool, models, nodeTests string
	kills                   int
	seed                    uint64
	dir                     string // for all written files
}

type row struct {
	what   string
	tried  int
	held   int
	note   string
	failed []string // the failures
}

// check counts one trial, and records its failure.
func (r *row) check(name string, f func() error) {
	r.tried++
	if err := f(); err != nil {
		r.failed = append(r.failed, fmt.Sprintf("%s: %v", name, err))
		return
	}
	r.held++
}

type part struct {
	name string
	run  func(b *bench) ([]*row, error)
}

var parts = []part{
	{"kills", (*bench).killParts},
	{"disk", (*bench).fullDisk},
	{"refused", (*bench).refused},
	{"same", (*bench).same},
	{"node-tests", (*bench).nodeTestModels},
}

func (b *bench) run(only string) (ok bool, err error) {
	pick, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	if b.tool, err = filepath.Abs(b.tool); err != nil {
		return false, err
	}
	if b.models, err = filepath.Abs(b.models); err != nil {
		return false, err
	}
	if b.dir, err = os.MkdirTemp("", "reliability"); err != nil {
		return false, err
	}
	defer os.RemoveAll(b.dir)
	fmt.Println("| test | tried | held | result |\n| --- | ---: | ---: | --- |")
	ok = true
	for _, p := range parts {
		if !pick.MatchString(p.name) {
			continue
		}
		rows, err := p.run(b)
		if err != nil {
			return false, fmt.Errorf("%s: %w", p.name, err)
		}
		for _, r := range rows {
			fmt.Printf("| %s | %d | %d | %s |\n", r.what, r.tried, r.held, r.note)
			for _, f := range r.failed[:min(len(r.failed), 20)] {
				fmt.Fprintln(os.Stderr, r.what+":", f)
			}
			ok = ok && len(r.failed) == 0 && r.tried == r.held
		}
	}
	fmt.Printf("\nseed %d, %s/%s, %d CPUs\n", b.seed, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return ok, nil
}
