package sites_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestOtherLengths refuses nodes that compute another function only for more tokens than the usual lengths: chunks of
// 200 tokens without the states before them, and the keys of the last 200 tokens.
func TestOtherLengths(t *testing.T) {
	turned := func(b builder, v value, perm ...int64) value {
		return b.Op("Transpose", v, onnx.IntsAttr("perm", perm))
	}
	for name, build := range map[string]func(b builder, q, k, v, gate, n value) value{
		"chunks": func(b builder, q, k, v, gate, n value) value {
			const size = 200
			chunks := inChunks(b, n, size, 0, 0, -1)
			_, scores := scoresOf(b, size, chunks(q, 4), chunks(k, 4), chunks(gate, 1), 0, 1, 2, 4, 3)
			rows := b.Op("Reshape", b.Op("MatMul", scores, chunks(v, 5)), b.Ints(0, 0, -1, 5))
			return b.Op("Slice", rows, b.Ints(0), n, b.Ints(2))
		},
		"window": func(b builder, q, k, v, gate, n value) value {
			sums := b.Op("CumSum", gate, 2)
			places := b.Op("Range", 0, b.Op("Squeeze", n, b.Ints(0)), 1)
			ago := b.Op("Sub", b.Op("Unsqueeze", places, b.Ints(1)), b.Op("Unsqueeze", places, b.Ints(0)))
			near := b.Op("And", b.Op("GreaterOrEqual", ago, 0), b.Op("Less", ago, 200))
			factors := b.Op("Exp", b.Op("Where", near, b.Op("Sub", sums, turned(b, sums, 0, 1, 3, 2)), math.Inf(-1)))
			return b.Op("MatMul", b.Op("Mul", b.Op("MatMul", q, turned(b, k, 0, 1, 3, 2)), factors), v)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnxtest.New(18)
			in := func(name string, width int) value { return b.Input(name, onnx.Float, "b", 2, "n", width) }
			q, k, v, gate := in("q", 4), in("k", 4), in("v", 5), in("gate", 1)
			b.Output(build(b, q, k, v, gate, b.Op("Slice", b.Op("Shape", v), b.Ints(2), b.Ints(3))))
			for _, s := range applytest.Apply(t, b.Model).Sites {
				if s.Op == "LinearAttention" && s.Status == rewrite.Fused {
					t.Errorf("fused: %+v", s.Check)
				}
			}
		})
	}
}

// TestStatesOfBlocks patches an export of three blocks of 6 tokens with another output. More tokens than 18 fail in
// the export. If the rows are repaired, the other output must be right for more tokens too: the op computes it, or it
// never depended on the blocks. Otherwise nothing is repaired.
func TestStatesOfBlocks(t *testing.T) {
	const stays = "without failing"
	for also, refused := range map[string]string{
		"state": "", "folded": "", "last keys": "", "state before the last block": "differs", "sum": stays,
		"keys of a block": stays, "keys of fixed places": stays, "a counter": stays, "second sum": stays,
		"second keys of fixed places": stays, "rest": "a rest of the tokens, is -5",
	} {
		t.Run(also, func(t *testing.T) {
			b := onnxtest.New(18)
			threeBlocks(b, true, false, also)
			repaired, why := false, ""
			for _, s := range applytest.Apply(t, b.Model).Sites {
				repaired = repaired || s.Op == "LinearAttention" && s.Status == rewrite.Fused
				why += s.Reason
			}
			if repaired != (refused == "") || !strings.Contains(why, refused) {
				t.Errorf("repaired %v, want a refusal by %q: %s", repaired, refused, why)
			}
			for _, tokens := range []int{1, 6, 7, 18, 19, 40} {
				if !repaired {
					break
				}
				in, want := blocksOf(tokens, also)
				got := rewritetest.Run(t, b.Model, in)[b.Model.Graph.Outputs[0].Name]
				if far, scale := prove.Distance(want, got.F); len(want) != len(got.F) || far > 1e-5*scale {
					t.Errorf("%d tokens: the other output differs by %g of %g", tokens, far, scale)
				}
			}
		})
	}
}

// blocksOf returns inputs of threeBlocks, or of unrolled with its "rows", and the other output by its definition.
func blocksOf(tokens int, also string) (in map[string]*reference.Tensor, want []float64) {
	const heads = 4 // of two sequences
	in = map[string]*reference.Tensor{}
	names := []string{"q", "k", "v", "gate", "past", "rows"}
	if also != "rows" {
		names = names[:3]
	}
	for i, name := range names {
		shape := []int{2, 2, tokens, []int{4, 4, 5, 1, 5, 5}[i]}
		if name == "past" {
			shape[2] = 4
		}
		list := make([]float64, 4*shape[2]*shape[3])
		for j := range list {
			if list[j] = math.Sin(float64(7*i + 3*j)); name == "gate" {
				list[j] = -0.1
			}
		}
		in[name] = reference.NewFloats(onnx.Float, shape, list)
	}
	k, v := in["k"].F, in["v"].F
	for h := range heads {
		if also == "last keys" {
			want = append(want, k[(h*tokens+tokens-1)*4:(h*tokens+tokens)*4]...)
			continue
		}
		state := make([]float64, 4*5)
		if also == "rows" {
			copy(state, in["past"].F[20*h:])
		}
		for n := h * tokens; n < (h+1)*tokens; n++ {
			row := make([]float64, 5)
			for i := range state {
				state[i] = state[i]*math.Exp(-0.1) + k[n*4+i/5]*v[n*5+i%5]
				row[i%5] += in["q"].F[n*4+i/5] * state[i]
			}
			if also == "rows" {
				copy(in["rows"].F[5*n:], row)
			}
		}
		want = append(want, state...)
	}
	return in, want
}

// TestUnrolledChunks repairs loops over chunks of 4 tokens that an export unrolled. They fail for fewer chunks, and
// leave out the tokens of more. Loops that compute anything else stay.
func TestUnrolledChunks(t *testing.T) {
	for i, wrong := range []string{"", "", "", "decay", "last decay", "no state",
		"chunks swapped", "rows swapped", "last state", "values beyond", "scale by chunks"} {
		chunks := 2 + i%3
		t.Run(fmt.Sprintf("%d chunks %s", chunks, wrong), func(t *testing.T) {
			m := unrolled(chunks, wrong)
			text := ""
			for _, s := range applytest.Apply(t, m).Sites {
				if s.Op == "LinearAttention" && s.Status == rewrite.Fused {
					text = s.Check.Repairs
				}
			}
			said := strings.Contains(text, fmt.Sprintf("first %d of %d", 4*chunks, 4*chunks+1)) &&
				strings.Contains(text, "fail for 1")
			if said != (wrong == "") || !said && text != "" {
				t.Fatalf("repaired %q", text)
			}
			for tokens := 1; said && tokens < 4*chunks+10; tokens++ {
				in, state := blocksOf(tokens, "rows")
				rows := in["rows"].F
				delete(in, "rows")
				got := rewritetest.Run(t, m, in)
				for i, want := range [][]float64{rows, state} {
					if far, scale := prove.Distance(want, got[m.Graph.Outputs[i].Name].F); !(far <= 1e-5*scale) {
						t.Errorf("output %d of %d tokens differs by %g of %g", i, tokens, far, scale)
					}
				}
			}
		})
	}
}

// unrolled is gated linear attention with a state, of a number of chunks. wrong is what differs from the op.
func unrolled(chunks int, wrong string) *onnx.Model {
	b := onnxtest.New(18)
	in := func(name string, tokens any, width int) value {
		return b.Input(name, onnx.Float, "b", 2, tokens, width)
	}
	v := in("v", "n", 5)
	n := b.Op("Slice", b.Op("Shape", v), b.Ints(2), b.Ints(3))
	chunked := inChunks(b, n, 4, 0, 2, -1)
	q, k := chunked(in("q", "n", 4), 4), chunked(in("k", "n", 4), 4)
	sums, scores := scoresOf(b, 4, q, k, chunked(in("gate", "n", 1), 1), 0, 1, 2, 4, 3)
	state, v := in("past", 4, 5), chunked(v, 5)
	turned := func(v value) value { return b.Op("Transpose", v, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})) }
	whole := b.Op("Slice", sums, b.Ints(-1), b.Ints(math.MaxInt64), b.Ints(3))
	q, keys := b.Op("Mul", q, b.Op("Exp", sums)), b.Op("Mul", k, b.Op("Exp", b.Op("Sub", whole, sums)))
	rows := b.Op("Mul", v, map[bool]float64{wrong == "values beyond": 1}[true])
	for i := range chunks {
		last, read, write := i == chunks-1, i, int64(i)
		switch {
		case wrong == "chunks swapped":
			read = chunks - 1 - i
		case wrong == "rows swapped":
			write = int64(chunks - 1 - i)
		case wrong == "no state" && last:
			state = b.Op("Mul", state, 0.0)
		}
		at := func(v value) value { return b.Op("Gather", v, read, onnx.IntAttr("axis", 2)) }
		row := b.Op("Add", b.Op("MatMul", at(q), state), b.Op("MatMul", at(scores), at(v)))
		if wrong == "scale by chunks" { // 1 for as many chunks as the loop has
			all := b.Op("Slice", b.Op("Shape", q), b.Ints(2), b.Ints(3))
			all = b.Op("Cast", all, onnx.IntAttr("to", int64(onnx.Float)))
			row = b.Op("Mul", row, b.Op("Div", float64(chunks), all))
		}
		row = b.Op("Unsqueeze", row, b.Ints(2))
		places := b.Op("Expand", b.Ints(write), b.Op("Shape", row))
		rows = b.Op("ScatterElements", rows, places, row, onnx.IntAttr("axis", 2))
		decay := b.Op("Exp", at(whole))
		if wrong == "decay" && i == chunks-2 || wrong == "last decay" && last {
			decay = b.Op("Mul", decay, 0.99)
		}
		if wrong != "last state" || !last {
			state = b.Op("Add", b.Op("Mul", state, decay), b.Op("MatMul", turned(at(keys)), at(v)))
		}
	}
	b.Output(b.Op("Slice", b.Op("Reshape", rows, b.Ints(0, 2, -1, 5)), b.Ints(0), n, b.Ints(2)))
	b.Output(state)
	return b.Model
}

// inChunks returns a function that pads values with a row for each of n tokens, and makes chunks an axis behind these.
func inChunks(b builder, n value, size int64, before ...int64) func(v value, width int64) value {
	short := b.Op("Mod", b.Op("Sub", b.Ints(0), n), b.Ints(size))
	pads := b.Op("Concat", b.Ints(0, 0, 0, 0, 0, 0), short, b.Ints(0), onnx.IntAttr("axis", 0))
	return func(v value, width int64) value {
		return b.Op("Reshape", b.Op("Pad", v, pads), b.Ints(append(slices.Clone(before), size, width)...))
	}
}

// scoresOf returns the sums of gates within each chunk, and the products of queries and keys with the decays between.
func scoresOf(b builder, size int64, q, k, gate value, perm ...int64) (sums, scores value) {
	turned := func(v value) value { return b.Op("Transpose", v, onnx.IntsAttr("perm", perm)) }
	mask := make([]float32, size*size)
	for i := range mask {
		if i%int(size) > i/int(size) {
			mask[i] = float32(math.Inf(-1))
		}
	}
	sums = b.Op("CumSum", gate, len(perm)-2)
	factors := b.Op("Exp", b.Op("Add", b.Op("Sub", sums, turned(sums)), b.Floats([]int64{size, size}, mask...)))
	return sums, b.Op("Mul", b.Op("MatMul", q, turned(k)), factors)
}
