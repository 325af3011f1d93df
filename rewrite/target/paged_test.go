package target

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// pagedSite is a PagedAttention of 11 tokens of 3 sequences, with blocks of 16 tokens.
func pagedSite(a fused.PagedAttention, t onnx.DataType) site {
	i32 := onnx.Int32
	return site{op: a.OpType(), attrs: a.Attributes(), types: []onnx.DataType{t, t, t, t, t, i32, i32, i32},
		dims: [][]int64{{11, 4, 8}, {11, 2, 8}, {11, 2, 8}, {7, 16, 2, 8}, {7, 16, 2, 8}, {4}, {3}, {3, 2}}}
}

// TestPagedAttention: the op of onnxruntime, as the evaluator has it, equals the fused op's definition.
func TestPagedAttention(t *testing.T) {
	const ops = "Reshape Reshape Reshape com.microsoft.PagedAttention Reshape"
	a := fused.PagedAttention{Scale: 0.3, Causal: true, HeadOrder: "blocked"}
	windowed, capped := a, a
	windowed.Window, capped.Softcap = 5, 2
	slots := pagedSite(windowed, f16)
	slots.types, slots.dims = append(slots.types, onnx.Int32), append(slots.dims, []int64{11})
	sinks := pagedSite(windowed, f16)
	sinks.dims[3], sinks.dims[4] = []int64{7, 256, 2, 8}, []int64{7, 256, 2, 8}
	sinks.types, sinks.dims = append(sinks.types, onnx.Undefined, f32), append(sinks.dims, nil, []int64{4})
	for name, s := range map[string]site{"sinks": sinks, "causal": pagedSite(a, f16),
		"window":  pagedSite(windowed, bf16),
		"softcap": pagedSite(capped, f16), "slots": slots} {
		t.Run(name, func(t *testing.T) {
			g, n, f := s.graph(t, 23)
			var inputs []*reference.Tensor
			of := fused.Site{Attributes: s.attrs, Types: s.types, Dims: s.dims}
			for i, x := range s.inputs(t) {
				if !x.IsFloat() {
					x = reference.NewInts(x.DataType, x.Shape, fused.PagedNumbers(of, i))
				}
				inputs = append(inputs, x)
			}
			want := evaluate(t, g, 23, []*onnx.Function{f}, inputs)
			if _, err := s.write(ort, n, 23); err != nil {
				t.Fatal(err)
			}
			if got := strings.Replace(written(g), "Cast ", "", 1); got != ops { // of the sinks
				t.Errorf("wrote %s, want %s", got, ops)
			}
			agree(t, s, "the evaluator", want, evaluate(t, g, 23, nil, inputs))
		})
	}
	full, zero, cyclic := a, a, a
	full.Causal, zero.Scale, cyclic.HeadOrder = false, 0, "cyclic"
	with := func(change func(s *site)) site {
		s := pagedSite(a, f16)
		change(&s)
		return s
	}
	blocks := func(n int64) site {
		return with(func(s *site) { s.dims[3] = []int64{-1, n, 2, 8}; s.dims[4] = s.dims[3] })
	}
	for reason, s := range map[string]site{
		"takes float16 and bfloat16, not float32":      pagedSite(a, f32),
		"only for attention to earlier keys":           pagedSite(full, f16),
		"reads a scale of 0 as its default":            pagedSite(zero, f16),
		"needs adjacent heads to share keys":           pagedSite(cyclic, f16),
		"takes blocks of 16, 32, 64, … tokens, not 24": blocks(24),
		"takes blocks of 16, 32, 64, … tokens, not 8":  blocks(8),
		"takes blocks of 16, 32, 64, … tokens, not -1": blocks(-1),
		"width is a multiple of 8, not 12": with(func(s *site) {
			s.dims[0], s.dims[1] = []int64{11, 4, 12}, []int64{11, 2, 12}
			s.dims[3] = []int64{7, 16, 2, 12}
		}),
		"keys and values of one width, not 8 and 16": with(func(s *site) {
			s.dims[2], s.dims[4] = []int64{11, 2, 16}, []int64{7, 16, 2, 16}
		}),
		"with sinks of heads of width 8 takes blocks of at least 256 tokens, not 16": with(func(s *site) {
			s.types, s.dims = append(s.types, onnx.Undefined, f32), append(s.dims, nil, []int64{4})
		}),
		"number or the width of the heads is unknown": with(func(s *site) { s.dims[0] = []int64{-1, -1, 8} }),
	} {
		t.Run("open: "+reason, func(t *testing.T) { open(t, ort, s, reason) })
	}
	to, err := Lookup("ort@1.30")
	if err != nil {
		t.Fatal(err)
	}
	open(t, to, pagedSite(a, f16), "the CUDA kernels of onnxruntime 1.30.0 are not known")
	if _, n, _ := pagedSite(a, f16).graph(t, 23); OnlyOnCUDA(n) {
		t.Error("the fused op itself runs on the CPU")
	}
}
