package streams_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/precision"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

const width = 16

// decoder builds small models whose blocks overflow in float16.
type decoder struct {
	*onnxtest.Builder
	r *rand.Rand
}

func newDecoder() *decoder { return &decoder{onnxtest.New(20), rand.New(rand.NewPCG(3, 4))} }

// weight returns a constant of normally distributed numbers times a factor.
func (d *decoder) weight(factor float64, dims ...int64) *onnx.Value {
	n := int64(1)
	for _, size := range dims {
		n *= size
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(factor * d.r.NormFloat64())
	}
	return d.Floats(dims, v...)
}

func (d *decoder) embedding(factor float64) (table, x *onnx.Value) {
	ids := d.Input("input_ids", onnx.Int64, "batch", "sequence")
	table = d.weight(factor, 32, width)
	return table, d.Op("Gather", table, ids)
}

func (d *decoder) rmsNorm(x *onnx.Value, weight float64) *onnx.Value {
	mean := d.Op("ReduceMean", d.Op("Pow", x, 2.0), []int64{-1})
	normed := d.Op("Mul", x, d.Op("Div", 1.0, d.Op("Sqrt", d.Op("Add", mean, 1e-6))))
	return d.Op("Mul", d.weight(weight, width), normed)
}

func (d *decoder) head(x, table *onnx.Value) {
	d.logits(d.Op("MatMul", x, d.Op("Transpose", table)))
}

func (d *decoder) logits(v *onnx.Value) {
	if err := d.Graph.Rename(v, "logits"); err != nil {
		panic(err)
	}
	d.Output(v)
}

// experts adds onnxruntime's MoE or QMoE of 4 experts, 2 for each token, with factor in the last product. The gate and
// up of a quantized swiglu are two matrices.
func (d *decoder) experts(op, activation string, x, logits *onnx.Value, factor float64) *onnx.Value {
	inputs, factors := []any{x, logits}, []float64{1, factor}
	if activation == "swiglu" {
		factors = append(factors, 1)
	}
	for _, f := range factors {
		if op == "MoE" {
			inputs = append(inputs, d.weight(f, 4, width, width), d.weight(f, 4, width))
			continue
		}
		codes := make([]byte, 4*width*width)
		for i := range codes {
			codes[i] = byte(d.r.IntN(256))
		}
		t, err := onnx.NewTensor("codes", onnx.Uint8, []int64{4, width, width}, codes)
		if err != nil {
			panic(err)
		}
		inputs = append(inputs, d.Constant(t), d.weight(f/128, 4, width), d.weight(f, 4, width))
	}
	return d.Op("com.microsoft:"+op, append(inputs, onnx.StringAttr("activation_type", activation),
		onnx.IntAttr("k", 2), onnx.IntAttr("normalize_routing_weights", 1), onnx.FloatAttr("activation_beta", 1),
		onnx.IntAttr("expert_weight_bits", 8))...)
}

// mixtures adds three mixtures to a residual stream, with a dense expert beside each. The routers read the normed
// stream, or the stream itself.
func (d *decoder) mixtures(op, activation string, direct bool) {
	table, x := d.embedding(1)
	for range 3 {
		n := d.rmsNorm(x, 1)
		read, size := n, 1.0
		if direct {
			read, size = x, 1e-3
		}
		logits := d.Op("Reshape", d.Op("MatMul", read, d.weight(size, width, 4)), []int64{-1, 4})
		h := d.Op("Relu", d.Op("MatMul", n, d.weight(1, width, width)))
		dense := d.Op("MatMul", h, d.weight(2000, width, width))
		x = d.Op("Add", x, d.Op("Add", dense, d.experts(op, activation, n, logits, 10000)))
	}
	d.head(d.rmsNorm(x, 0.2), table)
}

// cases are models that overflow in float16, and can be scaled.
var cases = map[string]func(*decoder){
	"a residual that grows to 100,000": func(d *decoder) {
		table, x := d.embedding(1)
		for range 3 {
			h := d.Op("Relu", d.Op("MatMul", d.rmsNorm(x, 1), d.weight(1, width, 2*width)))
			x = d.Op("Add", x, d.Op("Add", d.Op("MatMul", h, d.weight(4000, 2*width, width)), d.weight(10, width)))
		}
		d.head(d.rmsNorm(x, 0.2), table)
	},
	"an embedding that is multiplied": func(d *decoder) {
		table, x := d.embedding(1)
		x = d.Op("Mul", x, 30000.0)
		x = d.Op("Add", x, d.Op("MatMul", d.rmsNorm(x, 1), d.weight(10, width, width)))
		d.head(d.rmsNorm(x, 0.2), table)
	},
	"sandwich norms": func(d *decoder) {
		table, x := d.embedding(1)
		for range 2 {
			h := d.Op("Gelu", d.Op("MatMul", d.rmsNorm(x, 1), d.weight(0.5, width, width)))
			x = d.Op("Add", x, d.rmsNorm(d.Op("MatMul", h, d.weight(1, width, width)), 50000))
		}
		d.head(d.rmsNorm(x, 0.2), table)
	},
	"a LayerNorm whose variance overflows": func(d *decoder) {
		table, x := d.embedding(40000)
		centered := d.Op("Sub", x, d.Op("ReduceMean", x, []int64{-1}))
		variance := d.Op("ReduceMean", d.Op("Mul", centered, centered), []int64{-1})
		normed := d.Op("Div", centered, d.Op("Sqrt", d.Op("Add", variance, 1e-5)))
		h := d.Op("Add", d.Op("Mul", normed, d.weight(1, width)), d.weight(1, width))
		x = d.Op("Add", x, d.Op("MatMul", h, d.weight(1, width, width)))
		h = d.Op("LayerNormalization", x, d.weight(1, width), d.weight(1, width))
		_ = table
		d.logits(d.Op("MatMul", h, d.weight(0.3, width, 32)))
	},
	"quantized weights": func(d *decoder) {
		table, x := d.embedding(1)
		codes := make([]byte, width*width)
		for i := range codes {
			codes[i] = byte(d.r.IntN(256))
		}
		t, err := onnx.NewTensor("codes", onnx.Int8, []int64{width, width}, codes)
		if err != nil {
			panic(err)
		}
		quantized := d.Constant(t)
		for range 2 {
			down := d.Op("DequantizeLinear", quantized, d.weight(300, width), onnx.IntAttr("axis", 1))
			h := d.Op("Relu", d.Op("MatMul", d.rmsNorm(x, 1), d.weight(1, width, width)))
			x = d.Op("Add", x, d.Op("MatMul", h, down))
		}
		d.head(d.rmsNorm(x, 0.2), table)
	},
	"the feed forward of T5": func(d *decoder) {
		table, x := d.embedding(1)
		for range 2 {
			n := d.rmsNorm(x, 1)
			gate := d.Op("MatMul", n, d.weight(10, width, 2*width))
			gelu := d.Op("Mul", d.Op("Mul", gate, 0.5), d.Op("Add", d.Op("Erf", d.Op("Div", gate, math.Sqrt2)), 1.0))
			up := d.Op("Mul", gelu, d.Op("MatMul", n, d.weight(2000, width, 2*width)))
			x = d.Op("Add", x, d.Op("MatMul", up, d.weight(2, 2*width, width)))
		}
		d.head(d.rmsNorm(x, 0.2), table)
	},
	"experts":                        func(d *decoder) { d.mixtures("MoE", "silu", false) },
	"quantized experts":              func(d *decoder) { d.mixtures("QMoE", "swiglu", false) },
	"a router that reads the stream": func(d *decoder) { d.mixtures("QMoE", "relu", true) },
	"scores before their scale": func(d *decoder) {
		table, x := d.embedding(1)
		n := d.rmsNorm(x, 1)
		q, k := d.Op("MatMul", n, d.weight(100, width, width)), d.Op("MatMul", n, d.weight(100, width, width))
		scores := d.Op("Mul", d.Op("MatMul", q, d.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 2, 1}))), 1e-5)
		x = d.Op("Add", x, d.Op("MatMul", d.Op("Softmax", scores), d.Op("MatMul", n, d.weight(1, width, width))))
		d.head(d.rmsNorm(x, 0.2), table)
	},
}

func TestCases(t *testing.T) {
	for name, build := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDecoder()
			build(d)
			nodes := len(d.Graph.Nodes)
			run := &pass.Run{Editor: edit.Editor{Model: d.Model}}
			if _, err := streams.Prepare(run, streams.Options{Strict: true}); err != nil {
				t.Fatal(err)
			}
			names := onnx.Names(d.Graph.Initializers())
			if copied := slices.Contains(names, "floats_times_2^-5"); name == "sandwich norms" && !copied {
				t.Errorf("no copy of a constant is named after its power: %q", names)
			}
			if n := len(d.Graph.Nodes); n > nodes {
				t.Errorf("%d nodes, before %d", n, nodes)
			}
			d = newDecoder()
			build(d)
			s := safely(t, d.Model, streams.Options{})
			safe, plain, brain := s.Report.Compare[0], s.Report.Compare[1], s.Report.Compare[2]
			if s.Report.Greatest < 65504 || plain.NotFinite == 0 && plain.Error < 0.05 {
				t.Errorf("plain float16 does well: %+v, greatest %g", plain, s.Report.Greatest)
			}
			if safe.NotFinite > 0 || safe.FirstNaN != "" || safe.Error > brain.Error ||
				safe.Logits.MeanKL > brain.Logits.MeanKL {
				t.Errorf("%+v, in bfloat16 %+v", safe, brain)
			}
		})
	}
}

// TestStays: values that cannot be scaled are reported and stay in float32.
func TestStays(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		build  func(*decoder)
	}{
		"a stream that leaves the model": {`"hidden" is an output`, func(d *decoder) {
			table, x := d.embedding(50000)
			x = d.Op("Add", x, d.Op("MatMul", d.rmsNorm(x, 1), d.weight(1, width, width)))
			if err := d.Graph.Rename(x, "hidden"); err != nil {
				panic(err)
			}
			d.Output(x)
			d.head(d.rmsNorm(x, 0.2), table)
		}},
		"a stream that meets a softmax": {"(Softmax) does not scale", func(d *decoder) {
			table, x := d.embedding(50000)
			x = d.Op("Add", x, d.Op("Softmax", x))
			d.head(d.rmsNorm(x, 0.2), table)
		}},
		"a gate": {"(Sigmoid) does not scale", func(d *decoder) {
			table, x := d.embedding(1)
			gate := d.Op("MatMul", x, d.weight(50000, width, width))
			x = d.Op("Add", x, d.Op("MatMul", d.Op("Mul", gate, d.Op("Sigmoid", gate)), d.weight(1e-4, width, width)))
			d.head(d.rmsNorm(x, 0.2), table)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDecoder()
			c.build(d)
			_, err := streams.Prepare(&pass.Run{Editor: edit.Editor{Model: d.Model}}, streams.Options{Strict: true})
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("strict: %v", err)
			}
			d = newDecoder()
			c.build(d)
			s := safely(t, d.Model, streams.Options{})
			if len(s.Report.Stays) == 0 || !strings.Contains(s.Report.Stays[0].Reason, c.reason) {
				t.Errorf("%+v", s.Report.Stays)
			}
			safe, brain := s.Report.Compare[0], s.Report.Compare[2]
			if safe.NotFinite > 0 || safe.FirstNaN != "" || safe.Error > brain.Error {
				t.Errorf("%+v, in bfloat16 %+v", safe, brain)
			}
		})
	}
}

// TestMasks: masked scores are not numbers that overflow.
func TestMasks(t *testing.T) {
	for _, hidden := range []float64{-math.MaxFloat32, -1e9, -1e5, math.Inf(-1)} {
		d := newDecoder()
		table, x := d.embedding(1)
		exists := d.Op("Cast", d.Input("attention_mask", onnx.Int64, "batch", "sequence"),
			onnx.IntAttr("to", int64(onnx.Bool)))
		mask := d.Op("Where", d.Op("Reshape", exists, d.Op("Slice", d.Op("Shape", x), []int64{0}, []int64{2})), 0.0,
			hidden)
		n := d.rmsNorm(x, 1)
		scores := d.Op("MatMul", n, d.Op("Transpose", n, onnx.IntsAttr("perm", []int64{0, 2, 1})))
		masked := d.Op("Add", scores, d.Op("Unsqueeze", mask, []int64{1}))
		x = d.Op("Add", x, d.Op("MatMul", d.Op("Softmax", masked), n))
		d.head(d.rmsNorm(x, 0.2), table)
		inputs := []*onnx.Tensor{onnx.NewInt64s("input_ids", []int64{1, 2, 3}), onnx.NewInt64s("attention_mask",
			[]int64{0, 1, 1})}
		for _, t := range inputs {
			t.Dims = []int64{1, 3}
		}
		s := safely(t, d.Model, streams.Options{Inputs: func(*onnx.Model) ([][]*onnx.Tensor, error) {
			return [][]*onnx.Tensor{inputs}, nil
		}})
		if s.Report.Overflowing > 0 || s.Report.Greatest > 100 {
			t.Errorf("a mask of %g: %+v", hidden, s.Report)
		}
	}
}

// inside builds a branch or body.
func (d *decoder) inside(name string, build func(*decoder)) *onnx.Attribute {
	return body(d.Builder, name, func(b *onnxtest.Builder) { build(&decoder{b, d.r}) })
}

// block adds a feed forward to a stream, whose result overflows.
func (d *decoder) block(x *onnx.Value, up, down *onnx.Value) *onnx.Value {
	return d.Op("Add", x, d.Op("MatMul", d.Op("Relu", d.Op("MatMul", d.rmsNorm(x, 1), up)), down))
}

// bodies are models whose streams overflow in branches and loops. Each scales with the given number of bridges, and the
// given number of values stays.
var bodies = map[string]struct {
	bridges, stays int
	build          func(*decoder)
}{
	"a stream through branches": {0, 0, func(d *decoder) {
		table, x := d.embedding(1)
		up, down := d.weight(1, width, width), d.weight(20000, width, width)
		cond := d.Input("fast", onnx.Bool)
		x = d.Op("If", cond,
			d.inside("then_branch", func(b *decoder) { b.Output(b.block(x, up, down)) }),
			d.inside("else_branch", func(b *decoder) { b.Output(b.block(b.block(x, up, down), up, down)) }))
		d.head(d.rmsNorm(d.block(x, up, down), 0.2), table)
	}},
	"models in branches": {0, 0, func(d *decoder) {
		ids, table := d.Input("input_ids", onnx.Int64, "batch", "sequence"), d.weight(1, 1100, width)
		cond, head := d.Input("fast", onnx.Bool), d.weight(0.1, width, 32)
		branch := func(factor float64) func(*decoder) {
			return func(b *decoder) {
				x := b.block(b.Op("Gather", table, ids), b.weight(1, width, width), b.weight(factor, width, width))
				b.Output(b.Op("MatMul", b.rmsNorm(x, 1), head))
			}
		}
		d.logits(d.Op("If", cond, d.inside("then_branch", branch(30000)), d.inside("else_branch", branch(90000))))
	}},
	"a state of a loop": {0, 0, func(d *decoder) {
		table, x := d.embedding(1)
		up, down := d.weight(1, width, width), d.weight(20000, width, width)
		last := d.Ops(2, "Loop", d.Constant(onnx.NewInt64s("times", []int64{3})), nil, x,
			d.inside("body", func(b *decoder) {
				b.Input("i", onnx.Int64)
				cond, y := b.Input("on", onnx.Bool), b.Input("y", onnx.Float, "batch", "sequence", width)
				y = b.block(y, up, down)
				b.Output(b.Op("Identity", cond))
				b.Output(y)
				b.Output(b.Op("ReduceMean", b.rmsNorm(y, 1), []int64{-1}))
			}))
		d.Output(last[1])
		d.head(d.rmsNorm(last[0], 0.2), table)
	}},
	"rows of a scan": {0, 0, func(d *decoder) {
		table, x := d.embedding(1)
		up, down := d.weight(1, width, width), d.weight(20000, width, width)
		rows := d.Op("Scan", x, onnx.IntAttr("num_scan_inputs", 1), onnx.IntsAttr("scan_input_axes", []int64{1}),
			onnx.IntsAttr("scan_output_axes", []int64{1}), d.inside("body", func(b *decoder) {
				b.Output(b.block(b.Input("row", onnx.Float, "batch", width), up, down))
			}))
		d.head(d.rmsNorm(rows, 0.2), table)
	}},
	"a stream that begins behind a Gelu in a branch": {2, 0, func(d *decoder) {
		table, x := d.embedding(1)
		cond := d.Input("fast", onnx.Bool)
		branch := func(b *decoder) { b.Output(b.rmsNorm(b.grow(b.Op("Gelu", x)), 0.2)) }
		d.head(d.Op("If", cond, d.inside("then_branch", branch), d.inside("else_branch", branch)), table)
	}},
	"a branch that never runs": {0, 1, func(d *decoder) {
		table, x := d.embedding(1)
		on := d.Op("Less", d.Op("ReduceMax", x, onnx.IntAttr("keepdims", 0)), 1e6)
		d.head(d.Op("If", on, d.inside("then_branch", func(b *decoder) { b.Output(b.rmsNorm(b.grow(x), 0.2)) }),
			d.inside("else_branch", func(b *decoder) { b.Output(b.Op("Softmax", b.weight(1, width))) })), table)
	}},
	"an output of a branch that does not scale": {0, 2, func(d *decoder) {
		_, x := d.embedding(1)
		d.logits(d.Op("If", d.Input("fast", onnx.Bool),
			d.inside("then_branch", func(b *decoder) { b.Output(b.Op("MatMul", x, b.weight(1e5, width, 32))) }),
			d.inside("else_branch", func(b *decoder) { b.Output(b.Op("MatMul", x, b.weight(1, width, 32))) })))
	}},
	"a state that does not scale": {0, 3, func(d *decoder) {
		table, x := d.embedding(1)
		last := d.Op("Loop", d.Constant(onnx.NewInt64s("times", []int64{3})), nil, x,
			d.inside("body", func(b *decoder) {
				b.Input("i", onnx.Int64)
				cond, y := b.Input("on", onnx.Bool), b.Input("y", onnx.Float, "batch", "sequence", width)
				b.Output(b.Op("Identity", cond))
				b.Output(b.Op("Add", b.Op("Mul", y, 300.0), b.Op("Softmax", y)))
			}))
		d.head(d.rmsNorm(last, 0.2), table)
	}},
}

// TestBodies converts models whose branches and loops overflow. No value may overflow afterwards.
func TestBodies(t *testing.T) {
	for name, c := range bodies {
		t.Run(name, func(t *testing.T) {
			d := newDecoder()
			c.build(d)
			s := safely(t, d.Model, streams.Options{})
			if r := s.Report; len(r.Bridges) != c.bridges || len(r.Stays) != c.stays {
				t.Errorf("%d bridges, %d values stay, want %d and %d", len(r.Bridges), len(r.Stays), c.bridges, c.stays)
			}
			safe, plain, brain := s.Report.Compare[0], s.Report.Compare[1], s.Report.Compare[2]
			if s.Report.Greatest < 65504 || plain.NotFinite == 0 && plain.Error < 0.05 {
				t.Errorf("plain float16 does well: %+v, greatest %g", plain, s.Report.Greatest)
			}
			if safe.NotFinite > 0 || safe.FirstNaN != "" || safe.Error > brain.Error {
				t.Errorf("%+v, in bfloat16 %+v", safe, brain)
			}
		})
	}
}

// TestStillOverflows expects an error if magnitudes exceed the measured ones times the headroom.
func TestStillOverflows(t *testing.T) {
	d := newDecoder()
	bodies["a state of a loop"].build(d)
	run := &pass.Run{Editor: edit.Editor{Model: d.Model}}
	s, err := streams.Prepare(run, streams.Options{Headroom: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := precision.ApplyExcept(run, onnx.Float16, s.Wide); err != nil {
		t.Fatal(err)
	}
	if err := s.Compare(d.Model); err == nil || !strings.Contains(err.Error(), "still overflows in float16, at node") {
		t.Errorf("got %v", err)
	}
}
