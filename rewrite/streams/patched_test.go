package streams_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/quantize"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

// TestFusedLaws evaluates the laws of fused ops at their examples in float32, with any scales of quantized weights.
func TestFusedLaws(t *testing.T) {
	for _, name := range strings.Fields(`RMSNorm AddRMSNorm GatedRMSNorm AddLayerNorm NormRotary RotaryEmbedding GLU
		Attention Linear Embedding MoE QMoE TopKRouter`) {
		t.Run(name, func(t *testing.T) {
			r, tried, ways, o := rand.New(rand.NewPCG(7, 8)), 0, 0, fused.Lookup(name)
			for _, c := range o.Types {
				for v, typ := range c.Types {
					if typ != onnx.Float && !(o.Family.Stored && (v == "S" || v == "D")) {
						c = fused.Combination{}
					}
				}
				if c.Types == nil {
					continue
				}
				sites := o.Examples(c, 20)
				for i := 0; i < len(sites); i += max(1, len(sites)/20) {
					build, given := example(t, o, sites[i], r)
					if _, err := evaluated(build(), given); err == nil { // otherwise its integers do not fit
						tried, ways = tried+1, ways+hold(t, build, given)
					}
				}
			}
			if tried < 2 || ways > 0 != (name != "Embedding" && name != "TopKRouter") {
				t.Errorf("%d examples grow in %d ways", tried, ways)
			}
		})
	}
}

// example builds a model of one op. Tokens and integers are inputs, weights are constants.
func example(t *testing.T, o *fused.Op, s fused.Site, r *rand.Rand) (func() *onnx.Model,
	map[string]*reference.Tensor) {
	given := map[string]*reference.Tensor{}
	var numbers []*onnx.Tensor
	for i, typ := range s.Types {
		numbers = append(numbers, nil)
		if !s.Has(i) {
			continue
		}
		n, shape := 1, []int{}
		for _, d := range s.Dims[i] {
			n, shape = n*int(d), append(shape, int(d))
		}
		x := reference.NewInts(typ, shape, make([]int64, n))
		if typ.IsFloat() {
			x = reference.NewFloats(typ, shape, make([]float64, n))
		}
		for k := range n {
			if typ.IsFloat() {
				x.F[k] = math.Round(256*r.NormFloat64()) / 64
			} else if x.I[k] = int64(r.IntN(2)); typ == onnx.Uint8 {
				x.I[k] += 120
			}
		}
		if typ == onnx.Float16 && o.Inputs[i].Type != "float16" && r.IntN(2) == 0 {
			x.F[0] = 0x1.004p-14 // loses a digit if it gets smaller, so the scales become float32
		}
		p := o.Inputs[i]
		made, err := x.ToONNX(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		if numbers[i] = made; p.Type == "T" && p.Name != "cos" && p.Name != "sin" || typ == onnx.Int64 {
			given[p.Name] = x
		}
	}
	return func() *onnx.Model {
		m := onnx.New(10, 20)
		inputs := make([]*onnx.Value, len(numbers))
		for i, x := range numbers {
			if x != nil && given[x.Name] != nil {
				inputs[i] = m.Graph.AddInput(x.Name, onnx.Type{DataType: x.DataType})
			} else if x != nil {
				inputs[i] = m.Graph.AddInitializer(x.Tied(x.Name))
			}
		}
		var outputs []string
		for _, p := range o.Outputs {
			outputs = append(outputs, "made_"+p.Name)
		}
		for _, v := range rewritetest.AddFused(t, m, o.Name, inputs, outputs, s.Attributes...) {
			m.Graph.AddOutput(v)
		}
		return m
	}, given
}

// TestQuantizedExperts converts patched mixtures whose experts are quantized and whose residual streams overflow.
func TestQuantizedExperts(t *testing.T) {
	for _, format := range []string{"q4_0", "q4_1", "q8_0", "mxfp4"} {
		t.Run(format, func(t *testing.T) {
			m := rewritetest.ReadModel(t, "mixtral-batched_mm-ts-fp16")
			if _, err := convert.Precision(m, onnx.Float); err != nil {
				t.Fatal(err)
			}
			if found, err := streams.Inflate(m, 15); err != nil || !found {
				t.Fatalf("no stream: %v", err)
			}
			unchecked := rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff}
			if _, err := rewrite.Apply(m, unchecked); err != nil {
				t.Fatal(err)
			}
			plan, err := quantize.Find(m, quantize.Options{Format: format})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Apply(unchecked); err != nil {
				t.Fatal(err)
			}
			half, err := m.Clone()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := convert.Precision(half, onnx.Float16); err != nil {
				t.Fatal(err)
			}
			s := safely(t, m, streams.Options{})
			safe, plain, brain := s.Report.Compare[0], s.Report.Compare[1], s.Report.Compare[2]
			if s.Report.Greatest < 65504 || plain.NotFinite == 0 && plain.Error < 0.1 {
				t.Fatalf("plain float16 does well: %+v", plain)
			}
			if len(s.Report.Stays)+len(s.Report.Bridges) > 0 || safe.NotFinite > 0 || safe.FirstNaN != "" ||
				safe.Error > brain.Error || safe.Logits.MeanKL > brain.Logits.MeanKL {
				t.Errorf("%+v, in bfloat16 %+v; %+v", safe, brain, s.Report.Stays)
			}
			for _, n := range m.Graph.Nodes {
				if v := n.Input(fused.QMoEDownScale); n.OpType == "QMoE" && v.Const.DataType == onnx.Float {
					t.Errorf("%q became float32, although no scale loses digits", v.Name)
				}
			}
			got, want := rewritetest.CountOps(m), rewritetest.CountOps(half)
			if !maps.Equal(got, want) || got["QMoE"] != 2 {
				t.Errorf("%v, without --safe %v", got, want)
			}
		})
	}
}
