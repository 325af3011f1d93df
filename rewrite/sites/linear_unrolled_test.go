package sites_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestUnrolledChunks repairs loops over chunks of 4 tokens that an export unrolled. They fail for fewer chunks, and leave
// out the tokens of more. Loops that compute anything else for any number of chunks stay.
func TestUnrolledChunks(t *testing.T) {
	for i, wrong := range []string{"", "", "", "decay", "last decay", "no state", "chunks swapped", "rows swapped", "last state",
		"ones beyond", "values beyond", "scale by chunks", "later state"} {
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
	if wrong == "ones beyond" {
		rows = b.Op("Exp", rows)
	}
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
			row = b.Op("Mul", row, b.Op("Div", float64(chunks), b.Op("Cast", all, onnx.IntAttr("to", int64(onnx.Float)))))
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
		if wrong == "later state" && i == chunks-2 {
			state = b.Op("Add", state, b.Op("MatMul", turned(at(k)), at(v)))
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
