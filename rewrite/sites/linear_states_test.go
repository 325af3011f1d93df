package sites_test

import (
	"math"
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
				list[j] -= 1
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
			decay, row := -0.1, make([]float64, 5)
			if also == "rows" {
				decay = in["gate"].F[n]
			}
			for i := range state {
				state[i] = state[i]*math.Exp(decay) + k[n*4+i/5]*v[n*5+i%5]
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
