// Command baked frees the dimensions of exports whose sizes are baked (models/export/baked.py), and compares the
// results with PyTorch's outputs at other sizes.
//
//	go run ./bench/baked DIR [-recorded] [NAME …]
//
// Each export is freed with the outputs at its own sizes, and with -recorded also with those at the greatest sizes. It
// is right if it reproduces all other outputs; a wrong one fails the run. With -extend-masks, exports that must be
// refused are only counted, since they have windows.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

var (
	recorded = flag.Bool("recorded", false, "use the outputs at the greatest sizes as evidence")
	masks    = flag.Bool("extend-masks", false, "assume that masks go on as they begin")
	verbose  = flag.Bool("v", false, "print the freed dimensions")
)

func main() {
	flag.Parse()
	counts := map[string]int{}
	paths, _ := filepath.Glob(filepath.Join(flag.Arg(0), "*", "truth.json"))
	for _, path := range paths {
		dir := filepath.Dir(path)
		if names := flag.Args()[1:]; len(names) > 0 && !slices.Contains(names, filepath.Base(dir)) {
			continue
		}
		start := time.Now()
		result, why := try(dir)
		counts[result]++
		fmt.Printf("%-28s %-8s %5.1fs  %s\n", filepath.Base(dir), result, time.Since(start).Seconds(), why)
	}
	fmt.Println(counts)
	if counts["wrong"] > 0 || len(paths) == 0 {
		os.Exit(1)
	}
}

// try frees one export. The result is right, wrong or refused, kept for exports that must be refused, or assumed for
// those that -extend-masks frees.
func try(dir string) (result, why string) {
	var truth struct {
		Free   string
		Refuse bool
	}
	b, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	if err == nil {
		err = json.Unmarshal(b, &truth)
	}
	if err != nil {
		return "failed", err.Error()
	}
	m, err := onnx.Read(filepath.Join(dir, "model.onnx"))
	if err != nil {
		return "failed", err.Error()
	}
	defer m.Close()
	cases, err := golden.Load(filepath.Join(dir, "golden.npz"), nil)
	if err != nil {
		return "failed", err.Error()
	}
	given := cases[:1]
	if *recorded {
		size := func(c golden.Case) (n int64) {
			for _, x := range c.Inputs {
				n = max(n, slices.Max(x.Dims[:min(2, len(x.Dims))]))
			}
			return n
		}
		most := slices.MaxFunc(cases[1:], func(a, b golden.Case) int { return int(size(a) - size(b)) })
		given = []golden.Case{cases[0], most}
	}
	run := &pass.Run{Editor: edit.Editor{Model: m}}
	r, err := dims.Apply(run, strings.Split(truth.Free, ","), dims.Options{Recorded: given, ExtendMasks: *masks})
	if err != nil {
		if truth.Refuse {
			return "kept", err.Error()
		}
		return "refused", err.Error()
	}
	if *verbose {
		for _, d := range r.Dims {
			fmt.Printf("  %s (%d): %s\n", d.Name, d.Size, d.Reason)
		}
		for _, c := range r.Constants {
			fmt.Printf("  %s %s: %s becomes %s\n", c.Op, c.Node, c.Was, c.Becomes)
		}
	}
	if truth.Refuse && *masks {
		return "assumed", r.Text() // the assumption does not hold for this model
	}
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		return "wrong", err.Error()
	}
	for i, c := range cases {
		in := map[string]*reference.Tensor{}
		for _, x := range c.Inputs {
			in[x.Name], _ = reference.FromONNX(x)
		}
		got, err := e.Run(in)
		if err != nil {
			return "wrong", fmt.Sprintf("case %d: %v", i, err)
		}
		for _, want := range c.Outputs {
			x, err := got[want.Name].ToONNX(want.Name)
			if err != nil {
				return "wrong", err.Error()
			}
			s, err := golden.Compare(x, want, golden.DefaultTolerance(want.DataType))
			if err != nil || !s.Passed {
				return "wrong", fmt.Sprintf("case %d: %v %s", i, err, s.Summary())
			}
		}
	}
	return "right", r.Text()
}
