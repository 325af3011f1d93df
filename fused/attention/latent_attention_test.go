package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// latentAttrs returns the plainest attributes with the given changes.
func latentAttrs(changed ...*onnx.Attribute) []*onnx.Attribute {
	attrs := []*onnx.Attribute{onnx.FloatAttr("scale", 0.125), onnx.IntAttr("causal", 1),
		onnx.StringAttr("empty", emptyZero),
		onnx.StringAttr("q_layout", layoutBNSH), onnx.StringAttr("y_layout", layoutBNSH),
		onnx.StringAttr("w_layout", op.LayoutInOut)}
	for _, c := range changed {
		attrs[slices.IndexFunc(attrs, func(a *onnx.Attribute) bool { return a.Name == c.Name })] = c
	}
	return attrs
}

func TestLatentAttentionSupports(t *testing.T) {
	types := []onnx.DataType{op.F16, op.F16, op.F16, op.F16, onnx.Undefined, op.F16}
	q, c, pe := []int64{2, 4, 3, 12}, []int64{2, 3, 16}, []int64{2, 1, 3, 4}
	w, past := []int64{16, 56}, []int64{2, 1, 7, 20}
	optest.RunSupports(t, []optest.SupportsCase{
		{"plain", latentAttention, latentAttrs(), types, [][]int64{q, c, pe, w, nil, past}, ""},
		{"unknown shapes", latentAttention, latentAttrs(), types, nil, ""},
		{"tokens first", latentAttention, latentAttrs(onnx.StringAttr("q_layout", layoutBSNH)), types,
			[][]int64{{2, 3, 4, 12}, c, pe, w, nil, past}, ""},
		{"weights by outputs", latentAttention, latentAttrs(onnx.StringAttr("w_layout", op.LayoutOutIn)), types,
			[][]int64{q, c, pe, {56, 16}, nil, past}, ""},
		{"weights turned round", latentAttention, latentAttrs(), types, [][]int64{q, c, pe, {56, 16}},
			"w of shape [C, O], here [16, O]"},
		{"heads that do not divide", latentAttention, latentAttrs(), types, [][]int64{q, c, pe, {16, 57}},
			"H divides O, here 4 and 57"},
		{"no channels of values", latentAttention, latentAttrs(), types, [][]int64{q, c, pe, {16, 28}},
			"F-R <= O/H, here 8 and 7"},
		{"rotated heads", latentAttention, latentAttrs(), types, [][]int64{q, c, {2, 4, 3, 4}, w},
			"k_pe of shape [B, 1, N, R], here [2, 1, 3, R]"},
		{"cache of keys", latentAttention, latentAttrs(), types, [][]int64{q, c, pe, w, nil, {2, 4, 7, 12}},
			"past of shape [B, 1, P, C+R], here [2, 1, P, 20]"},
		{"another batch", latentAttention, latentAttrs(), types, [][]int64{q, {1, 3, 16}, pe, w},
			"c of shape [B, N, C], here [2, N, C]"},
		{"latents by heads", latentAttention, latentAttrs(), types, [][]int64{q, {2, 1, 3, 16}, pe, w},
			"c of shape [B, N, C]"},
		{"length without a cache", latentAttention, latentAttrs(), append(slices.Clone(types[:4]), onnx.Undefined,
			onnx.Undefined, onnx.Int64), nil, "past_length only with past"},
		{"two types", latentAttention, latentAttrs(), []onnx.DataType{op.F16, op.F16, op.F32, op.F16}, nil, "one type"},
		{"causal twice", latentAttention, latentAttrs(onnx.IntAttr("causal", 2)), types, nil, "causal is 2"},
		{"infinite scale", latentAttention, latentAttrs(onnx.FloatAttr("scale", float32(math.Inf(1)))), types, nil,
			"finite"},
	})
}

// TestLatentAttentionShapes checks that the cache grows by the new tokens, except with past_length.
func TestLatentAttentionShapes(t *testing.T) {
	s := op.Site{Attributes: latentAttrs(onnx.StringAttr("y_layout", layoutBSNH)),
		Types: []onnx.DataType{op.F32, op.F32, op.F32, op.F32, onnx.Undefined, op.F32},
		Dims:  [][]int64{{-1, 4, 3, 12}, {2, 3, -1}, {2, 1, 3, 4}, {16, 56}, nil, {2, 1, 7, 20}}}
	same := func(a, b int64) int64 { return max(a, b) }
	for _, want := range [][][]int64{{{2, 3, 4, 6}, {2, 1, 10, 20}}, {{2, 3, 4, 6}, {2, 1, 7, 20}}} {
		if got := latentAttention.OutputShapes(s, same); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.Types, s.Dims = append(s.Types, onnx.Int64), append(s.Dims, []int64{1})
	}
}

// TestLatentAttentionAbsorbed compares the definition with the absorbed form, in float64: queries times the weights of
// keys, attention to the latents, and the result times the weights of values.
func TestLatentAttentionAbsorbed(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 7))
	for _, opset := range []int64{13, 18} { // where bodies differ
		for _, s := range latentAttention.Examples(latentAttention.Types[0], opset) {
			if s.Dims[LatentAttentionQ][1] > 10 || s.Dims[LatentAttentionQ][2] > 10 {
				continue // many of the same
			}
			in := optest.RandomInputs(r, s)
			got, err := optest.Evaluate(latentAttention, s, in)
			if err != nil {
				t.Fatalf("%s at opset %d: %v", latentAttention.Overload(s), opset, err)
			}
			want := absorbedAttention(s, in)
			for i, x := range want {
				if y := got[0].F[i]; !(math.Abs(x-y) <= 1e-6*(1+math.Abs(x))) {
					t.Fatalf("%s at opset %d: element %d is %v, want %v", latentAttention.Overload(s), opset, i, y, x)
				}
			}
		}
	}
}

// absorbedAttention returns Y.
func absorbedAttention(s op.Site, in []*reference.Tensor) []float64 {
	q, w := headsOf(s, LatentAttentionQ, "q_layout"), in[LatentAttentionW].F
	batch, heads, queries, width := int(q.batch), int(q.heads), int(q.length), int(q.width)
	added, latent, rotated := in[LatentAttentionC].Shape[1], in[LatentAttentionC].Shape[2],
		in[LatentAttentionKPE].Shape[3]
	outputs, nope := len(w)/latent, width-rotated
	values := outputs/heads - nope
	weight := func(output, input int) float64 {
		if s.Attr("w_layout").String == op.LayoutOutIn {
			return w[output*latent+input]
		}
		return w[input*outputs+output]
	}
	all := latent + rotated
	attends := op.Site{Attributes: append(slices.Clone(s.Attributes), onnx.StringAttr("head_order", headBlocked),
		onnx.StringAttr("k_layout", layoutBNSH), onnx.StringAttr("v_layout", layoutBNSH))}
	given := make([]*reference.Tensor, AttentionSink+1)
	attends.Types = make([]onnx.DataType, len(given))
	give := func(i int, shape []int, at func(place []int) float64) {
		list := make([]float64, 0, shape[0]*shape[1]*shape[2]*shape[3])
		place := make([]int, 4)
		for n := range cap(list) {
			for axis := 3; axis >= 0; axis-- {
				place[axis], n = n%shape[axis], n/shape[axis]
			}
			list = append(list, at(place))
		}
		given[i], attends.Types[i] = reference.NewFloats(op.F32, shape, list), op.F32
	}
	attends.Dims = make([][]int64, len(given))
	queryAt := func(p []int) (h, start int) {
		if h = p[1]; s.Attr("q_layout").String == layoutBSNH {
			return p[2], ((p[0]*queries+p[1])*heads + p[2]) * width
		}
		return h, ((p[0]*heads+p[1])*queries + p[2]) * width
	}
	shape := []int{batch, heads, queries, all}
	if s.Attr("q_layout").String == layoutBSNH {
		shape[1], shape[2] = queries, heads
	}
	give(AttentionQ, shape, func(p []int) float64 {
		h, start := queryAt(p)
		if p[3] >= latent {
			return in[LatentAttentionQ].F[start+nope+p[3]-latent]
		}
		sum := 0.0
		for e := range nope {
			sum += in[LatentAttentionQ].F[start+e] * weight(h*(nope+values)+e, p[3])
		}
		return sum
	})
	fresh := func(p []int) float64 {
		if p[3] < latent {
			return in[LatentAttentionC].F[(p[0]*added+p[2])*latent+p[3]]
		}
		return in[LatentAttentionKPE].F[(p[0]*added+p[2])*rotated+p[3]-latent]
	}
	give(AttentionK, []int{batch, 1, added, all}, fresh)
	give(AttentionV, []int{batch, 1, added, latent}, fresh)
	if len(in) > LatentAttentionPast && in[LatentAttentionPast] != nil {
		rows := in[LatentAttentionPast].Shape[2]
		past := func(p []int) float64 { return in[LatentAttentionPast].F[(p[0]*rows+p[2])*all+p[3]] }
		give(AttentionPastKey, []int{batch, 1, rows, all}, past)
		give(AttentionPastValue, []int{batch, 1, rows, latent}, past)
	}
	for from, to := range map[int]int{LatentAttentionKeyValid: AttentionKeyValid,
		LatentAttentionPastLength: AttentionPastLength} {
		if len(in) > from && in[from] != nil {
			given[to], attends.Types[to] = in[from], onnx.Int64
		}
	}
	for i, x := range given {
		if x != nil {
			for _, d := range x.Shape {
				attends.Dims[i] = append(attends.Dims[i], int64(d))
			}
		}
	}
	attended := naiveAttention(attends, given)
	y := make([]float64, 0, batch*heads*queries*values)
	for row := range batch * heads * queries {
		h := row / queries % heads
		if s.Attr("y_layout").String == layoutBSNH {
			h = row % heads
		}
		for d := range values {
			sum := 0.0
			for i := range latent {
				sum += attended[row*latent+i] * weight(h*(nope+values)+nope+d, i)
			}
			y = append(y, sum)
		}
	}
	return y
}
