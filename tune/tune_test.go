package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// fake is a Timer of kernels with tiles of 16 and 64 by wgmma, and others for up to 8 tokens.
type fake struct{ asked [][]Config }

func (f *fake) Time(tokens int64, configs []Config) ([]Time, error) {
	f.asked = append(f.asked, configs)
	times := make([]Time, len(configs))
	for i, c := range configs {
		switch {
		case c == Auto:
			times[i].Micros = map[int64]float64{1: 100, 16: 56, 512: 200}[tokens]
		case c.Kernel == "few" && tokens <= 8:
			times[i].Micros = 10 * float64(tokens)
		case c.Kernel == "wgmma" && (c.BlockM == 16 || c.BlockM == 64):
			times[i].Micros = 30 + 1000/float64(c.BlockM) + float64(tokens*int64(c.BlockM))/100 + float64(c.Split)
		default:
			times[i].Err = ErrRefused
		}
	}
	return times, nil
}

func TestSearch(t *testing.T) {
	f := &fake{}
	shape := Shape{Format: MXFP4, Experts: 32, TopK: 4, Hidden: 2880, Inner: 2880, Capability: 90, Device: "H"}
	var all []Measured
	table, err := Search(shape, []int64{512, 1, 16, 1}, f, func(m Measured) { all = append(all, m) })
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `{
  "shape": {"format": "mxfp4", "experts": 32, "top_k": 4, "hidden": 2880, "inner": 2880, "capability": 90, "device": "H"},
  "1": {"kernel": "few", "us": 10},
  "16": {"kernel": "auto", "us": 56},
  "512": {"kernel": "wgmma", "block_m": 16, "us": 174.4}
}
`
	if b.String() != want {
		t.Errorf("the table is\n%s\nand not\n%s", b.String(), want)
	}
	if len(all) != 3 || all[1].Tried != 10 || all[1].Chosen != 56 || all[0].Tried != 11 {
		t.Errorf("measured: %+v", all)
	}
	if len(f.asked[1]) != 12 || len(f.asked[2]) != 11 {
		t.Errorf("what was refused with fewer tokens is tried again: %d, %d", len(f.asked[1]), len(f.asked[2]))
	}
}

type failing struct{ err error }

func (f failing) Time(_ int64, configs []Config) ([]Time, error) {
	times := make([]Time, len(configs))
	for i := range times[1:] {
		times[i+1].Err = f.err
	}
	return times, nil
}

func TestSearchFails(t *testing.T) {
	for err, want := range map[error]string{
		ErrRefused:              "one configuration for these experts",
		errors.New("no device"): "8 tokens, few: no device",
	} {
		_, got := Search(Shape{Format: FP8}, []int64{8}, failing{err}, func(Measured) {})
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%v gives %v, and not %q", err, got, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for want, s := range map[string]Shape{
		"tables do not support the format \"q4_0\"": {Format: "q4_0", Experts: 4, TopK: 2, Hidden: 64, Inner: 64},
		"from 1 to a million":                       {Format: MXFP4, Experts: 4, TopK: 2, Hidden: 64},
		"cannot choose more experts than exist":     {Format: MXFP4, Experts: 4, TopK: 5, Hidden: 64, Inner: 64},
		"multiples of 128":                          {Format: FP8, Experts: 4, TopK: 2, Hidden: 192, Inner: 128},
		"have only one layout":                      {Format: FP8, Layout: "in_out", Experts: 4, TopK: 2, Hidden: 128, Inner: 128},
	} {
		if _, err := New(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v gives %v, and not %q", s, err, want)
		}
	}
}

// TestFind finds the experts of the models that are measured.
func TestFind(t *testing.T) {
	for _, want := range []Shape{
		{Format: BFloat16, Experts: 8, TopK: 2, Hidden: 48, Inner: 32},
		{Format: Float16, Layout: "in_out", Experts: 8, TopK: 2, Hidden: 48, Inner: 32},
		{Format: MXFP4, Experts: 4, TopK: 3, Hidden: 64, Inner: 32},
		{Format: FP8, Experts: 4, TopK: 1, Hidden: 256, Inner: 128},
	} {
		e, err := New(want)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := e.model(5, 2)
		if err := e.op.Supports(withTypes(e.site(5))); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		list, others := Find(m)
		if len(list) != 1 || list[0].Shape != want || len(others) != 0 {
			t.Errorf("%s: found %v, others %v", want, list, others)
		}
	}
	e, _ := New(Shape{Format: FP8, Experts: 4, TopK: 1, Hidden: 256, Inner: 128})
	e.attributes[len(e.attributes)-1] = onnx.StringAttr("activations", "float")
	m, _ := e.model(5, 1)
	list, others := Find(m)
	if len(list) != 0 || len(others) != 1 || !strings.Contains(others[0], "activations=float") {
		t.Errorf("found %v, others %v", list, others)
	}
}

func withTypes(s fused.Site) fused.Site {
	s.Opset = opset
	return s
}

// TestSessions runs the measuring models with the CPU's kernels, which read no tables.
func TestSessions(t *testing.T) {
	library := orttest.Kernels(t)
	t.Setenv(ort.LibraryVariable, orttest.Library(t))
	t.Setenv(Variable, "kept")
	for _, shape := range []Shape{
		{Format: BFloat16, Experts: 8, TopK: 2, Hidden: 48, Inner: 32},
		{Format: Float16, Experts: 8, TopK: 2, Hidden: 48, Inner: 32},
		{Format: MXFP4, Experts: 4, TopK: 3, Hidden: 64, Inner: 32},
		{Format: FP8, Experts: 4, TopK: 1, Hidden: 256, Inner: 128},
	} {
		e, err := New(shape)
		if err != nil {
			t.Fatal(err)
		}
		e.biased = true
		s, err := NewSessions(e, ort.WithThreads(1), ort.WithKernelLibrary(library))
		if err != nil {
			t.Fatalf("%s: %v", shape, err)
		}
		times, err := s.Time(3, []Config{Auto, {Kernel: "few"}})
		if err != nil || len(times) != 2 || times[0].Micros <= 0 || times[1].Micros <= 0 {
			t.Errorf("%s: %v, %v", shape, times, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if os.Getenv(Variable) != "kept" {
		t.Error("the variable is not what it was")
	}
}

// TestShippedTables reads the tables of the kernel library as they were written.
func TestShippedTables(t *testing.T) {
	paths, err := filepath.Glob("../fused/moe/cuda/moe_tables/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no tables: %v", err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var entries map[string]json.RawMessage
		var shape Shape
		if err := errors.Join(json.Unmarshal(b, &entries), json.Unmarshal(entries["shape"], &shape)); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := New(shape); err != nil || shape.Capability == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
}
