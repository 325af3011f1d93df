package streams_test

import (
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/precision"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

// bundled calls test for each of the bundled models.
func bundled(t *testing.T, test func(*testing.T, *onnx.Model)) {
	if testing.Short() {
		t.Skip("it evaluates every bundled model several times")
	}
	paths, err := filepath.Glob("../../models/*.onnx")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d models, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".onnx"), func(t *testing.T) {
			m, err := onnx.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			test(t, m)
		})
	}
}

// safely converts a model to float16 and compares it with others.
func safely(t *testing.T, m *onnx.Model, o streams.Options) *streams.Safe {
	t.Helper()
	run := &pass.Run{Editor: edit.Editor{Model: m}}
	s, err := streams.Prepare(run, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := precision.ApplyExcept(run, onnx.Float16, s.Wide); err != nil {
		t.Fatal(err)
	}
	if err := s.Compare(m); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + s.Report.Text())
	checkChanges(t, s.Report)
	return s
}

// TestLittleHeadroom scales all possible values of the bundled models. Each edit is proven.
func TestLittleHeadroom(t *testing.T) {
	scaled := 0
	bundled(t, func(t *testing.T, m *onnx.Model) {
		s := safely(t, m, streams.Options{Headroom: 1 << 14})
		if len(s.Report.Scaled) > 0 {
			scaled++
		}
		if s.Report.Overflowing > 0 && len(s.Report.Scaled)+len(s.Report.Stays) == 0 {
			t.Error("nothing was done about what overflows")
		}
		safe, plain := s.Report.Compare[0], s.Report.Compare[1]
		if safe.NotFinite > 0 || safe.Error > 3*plain.Error+1e-4 {
			t.Errorf("error %.3g, without scales %.3g", safe.Error, plain.Error)
		}
	})
	if scaled < 31 {
		t.Errorf("only %d models were scaled", scaled)
	}
}

// TestOverflowingStreams multiplies the residual streams of the bundled models so that they overflow, as in trained
// models. Plain float16 has the same nodes, except for bridges and the casts of values that stay in float32.
func TestOverflowingStreams(t *testing.T) {
	streamsFound := 0
	bundled(t, func(t *testing.T, m *onnx.Model) {
		if _, err := convert.Precision(m, onnx.Float); err != nil {
			t.Fatal(err)
		}
		found, err := streams.Inflate(m, 16)
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			t.Skip("no residual stream that can be scaled")
		}
		streamsFound++
		half, err := m.Clone()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := convert.Precision(half, onnx.Float16); err != nil {
			t.Fatal(err)
		}
		s := safely(t, m, streams.Options{})
		got, want := rewritetest.CountOps(m), rewritetest.CountOps(half)
		want["Mul"] += len(s.Report.Bridges)
		for _, op := range []string{"Constant", "Cast"} { // constants become initializers
			if op == "Constant" || len(s.Report.Stays) > 0 {
				delete(got, op)
				delete(want, op)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%v, without --safe %v", got, want)
		}
		safe, plain, brain := s.Report.Compare[0], s.Report.Compare[1], s.Report.Compare[2]
		if s.Report.Greatest <= 65504 || plain.NotFinite == 0 && plain.Error < 0.1 {
			t.Fatalf("plain float16 does well: %+v", plain)
		}
		if safe.NotFinite > 0 || safe.FirstNaN != "" || math.IsNaN(float64(safe.Error)) || safe.Error > brain.Error {
			t.Errorf("%+v, in bfloat16 %+v", safe, brain)
		}
		if safe.Logits != nil && safe.Logits.MeanKL > brain.Logits.MeanKL {
			t.Errorf("KL %g, in bfloat16 %g", safe.Logits.MeanKL, brain.Logits.MeanKL)
		}
	})
	if streamsFound < 19 {
		t.Errorf("only %d residual streams were found", streamsFound)
	}
}
