package rewrite

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// withoutWeights moves the large weights of a bundled model to a missing file.
func withoutWeights(t *testing.T, name string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read("../models/" + name + ".onnx")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "graph.onnx")
	if err := errors.Join(onnx.Write(path, m, onnx.ExternalDataOver(100)), m.Close(),
		os.Remove(path+".data")); err != nil {
		t.Fatal(err)
	}
	if m, err = onnx.Read(path, onnx.AllowMissingData()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestDrawnWeights demands the same sites in graphs without weights as with them, all checked with random weights.
// Without the option they are refused; experts with another meaning are always refused.
func TestDrawnWeights(t *testing.T) {
	for name, drawn := range map[string]int{"gptoss-batched_mm-dynamo-fp32": 7, "deepseek3-batched_mm-ts-fp32": 6,
		"near/moe-different-ts-fp32": 0, "near/moe-scales-ts-fp32": 0} {
		whole, err := onnx.Read("../models/" + name + ".onnx")
		if err != nil {
			t.Fatal(err)
		}
		defer whole.Close()
		want := fusedOnCPU(t, whole)
		m := withoutWeights(t, name)
		r, err := Apply(m, Request{AssumeAvailable: true, Backend: onCPU(t), DrawMissing: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := fusedSites(r); !slices.Equal(got, want) || r.Drawn < drawn || (drawn == 0) != (r.Drawn == 0) {
			t.Errorf("%s: %d sites checked with drawn weights, found\n%v\nnot\n%v", name, r.Drawn, got, want)
		}
		for _, s := range r.Sites {
			if s.Status == Fused && s.Check == nil {
				t.Errorf("%s: %s at %s was not checked", name, s.Pattern, s.Node)
			}
		}
		if r, err = Apply(withoutWeights(t, name), Request{AssumeAvailable: true, Backend: onCPU(t)}); err != nil {
			t.Fatal(err)
		}
		if got := fusedSites(r); drawn > 0 && len(got) >= len(want) {
			t.Errorf("%s: without the option %v", name, got)
		}
	}
}

func onCPU(t *testing.T) registry.Backend {
	t.Helper()
	return backendOf(t, "+CPU")
}

func backendOf(t *testing.T, devices string) registry.Backend {
	t.Helper()
	b, err := registry.ParseBackend(devices)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fusedOnCPU(t *testing.T, m *onnx.Model) []string {
	t.Helper()
	r, err := Apply(m, Request{AssumeAvailable: true, Backend: onCPU(t)})
	if err != nil {
		t.Fatal(err)
	}
	return fusedSites(r)
}

func fusedSites(r *Report) (list []string) {
	for _, s := range r.Sites {
		if s.Status == Fused {
			list = append(list, s.Pattern+" "+s.Node)
		}
	}
	return list
}

// TestDrawnNumbers demands that a norm without its epsilon stays: numbers that patterns read are not drawn.
func TestDrawnNumbers(t *testing.T) {
	b := rewritetest.New(t, 20, onnx.Float)
	x := b.In("x", "tokens", 64)
	b.Out(b.Norm(x, b.Weight("scale", 64), 1e-6), "tokens", 64)
	for _, v := range b.Model.Graph.Initializers() {
		reference, err := onnx.NewReference(v.Name, v.Const.DataType, v.Const.Dims,
			onnx.External{Location: "absent.bin", Length: v.Const.Size()})
		if err == nil && v.Const.DataType == onnx.Float {
			v.Const = reference
		}
	}
	r, err := Apply(b.Model, Request{AssumeAvailable: true, Backend: onCPU(t), DrawMissing: true})
	if err != nil || r.Fused() != 0 {
		t.Fatalf("%d fused (%v)", r.Fused(), err)
	}
	for _, s := range r.Sites {
		if strings.Contains(s.Reason, "random") {
			t.Errorf("%+v", s)
		}
	}
}
