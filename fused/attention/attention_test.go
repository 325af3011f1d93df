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

// attentionAttrs returns the plainest attributes with the given changes.
func attentionAttrs(changed ...*onnx.Attribute) []*onnx.Attribute {
	attrs := []*onnx.Attribute{onnx.FloatAttr("scale", 0.125), onnx.IntAttr("causal", 0), onnx.IntAttr("window", 0),
		onnx.FloatAttr("softcap", 0), onnx.StringAttr("empty", emptyZero), onnx.StringAttr("head_order", headBlocked)}
	for _, tensor := range []string{"q", "k", "v", "y"} {
		attrs = append(attrs, onnx.StringAttr(tensor+"_layout", layoutBNSH))
	}
	for _, c := range changed {
		attrs[slices.IndexFunc(attrs, func(a *onnx.Attribute) bool { return a.Name == c.Name })] = c
	}
	return attrs
}

func TestAttentionSupports(t *testing.T) {
	types := func(changed map[int]onnx.DataType, n int) []onnx.DataType {
		list := make([]onnx.DataType, n)
		for i := range list {
			list[i] = changed[i]
			if _, ok := changed[i]; !ok && i < AttentionKeyValid {
				list[i] = op.F16
			}
		}
		return list
	}
	plain, cached := types(nil, 3), types(map[int]onnx.DataType{AttentionPastKey: op.F16, AttentionPastValue: op.F16},
		6)
	q, k, v, past := []int64{2, 6, 3, 8}, []int64{2, 2, 3, 8}, []int64{2, 2, 3, 5}, []int64{2, 2, 7, 8}
	with := func(input int, typ onnx.DataType, dims ...int64) ([]onnx.DataType, [][]int64) {
		list, shapes := types(map[int]onnx.DataType{input: typ}, input+1), make([][]int64, input+1)
		shapes[0], shapes[1], shapes[2], shapes[input] = q, k, v, dims
		return list, shapes
	}
	tests := []optest.SupportsCase{
		{"plain", Op, attentionAttrs(), plain, [][]int64{q, k, v}, ""},
		{"unknown shapes", Op, attentionAttrs(), plain, nil, ""},
		{"cache", Op, attentionAttrs(), cached, [][]int64{q, k, v, nil, past, {2, 2, 7, 5}}, ""},
		{"tokens first", Op, attentionAttrs(onnx.StringAttr("q_layout", layoutBSNH)), plain,
			[][]int64{{2, 3, 6, 8}, k, v}, ""},
		{"half a cache", Op, attentionAttrs(), types(map[int]onnx.DataType{AttentionPastKey: op.F16}, 5),
			[][]int64{q, k, v, nil, past}, "past_key and past_value, or neither"},
		{"length without a cache", Op, attentionAttrs(),
			types(map[int]onnx.DataType{AttentionPastLength: onnx.Int64}, 7), nil, "past_length only with past_key"},
		{"cache of another width", Op, attentionAttrs(), cached,
			[][]int64{q, k, v, nil, {2, 2, 7, 4}, {2, 2, 7, 5}},
			"past_key of shape [B, Hk, P, D], here [2, 2, P, 8]: past_key is [2 2 7 4], "},
		{"values of another length", Op, attentionAttrs(), plain, [][]int64{q, k, {2, 2, 4, 5}},
			"v of shape [B, Hk, N, Dv], here [2, 2, 3, Dv]"},
		{"heads that do not divide", Op, attentionAttrs(), plain, [][]int64{{2, 5, 3, 8}, k, v}, "divide"},
		{"packed heads", Op, attentionAttrs(), plain, [][]int64{{2, 3, 48}, k, v}, "q of shape [B, H, S, D]"},
		{"two types", Op, attentionAttrs(), types(map[int]onnx.DataType{AttentionK: op.F32}, 3), nil, "one type"},
		{"negative window", Op, attentionAttrs(onnx.IntAttr("window", -1)), plain, nil, "window is -1"},
		{"causal twice", Op, attentionAttrs(onnx.IntAttr("causal", 2)), plain, nil, "causal is 2"},
		{"infinite scale", Op, attentionAttrs(onnx.FloatAttr("scale", float32(math.Inf(1)))), plain, nil,
			"finite"},
		{"unknown rows", Op, attentionAttrs(onnx.StringAttr("empty", "none")), plain, nil, "zero, mean"},
	}
	add := func(name, err string, input int, typ onnx.DataType, dims ...int64) {
		list, shapes := with(input, typ, dims...)
		tests = append(tests, optest.SupportsCase{name, Op, attentionAttrs(), list, shapes, err})
	}
	add("sink", "", AttentionSink, op.F32, 6)
	add("sink of key heads", "sink of shape [H], here [6]", AttentionSink, op.F32, 2)
	add("sink of half", "takes sink of float32", AttentionSink, op.F16, 6)
	add("bias", "", AttentionBias, op.F32, 6, 1, 3)
	add("bias of key heads", "bias that broadcasts to [B, H, S, L], here [2, 6, 3, 3]", AttentionBias, op.F32, 2, 1, 3)
	add("bool mask", "takes key_valid of int64", AttentionKeyValid, onnx.Bool, 2, 3)
	add("mask of one sequence", "key_valid of shape [B, >=L], here [2, >=3]", AttentionKeyValid, onnx.Int64, 1, 3)
	optest.RunSupports(t, tests)
}

// TestAttentionShapes checks that the cache grows by the new keys, except with past_length.
func TestAttentionShapes(t *testing.T) {
	s := op.Site{Attributes: attentionAttrs(onnx.StringAttr("y_layout", layoutBSNH)),
		Types: []onnx.DataType{op.F32, op.F32, op.F32, onnx.Undefined, op.F32, op.F32},
		Dims:  [][]int64{{-1, 6, 3, 8}, {2, 2, 3, 8}, {2, 2, 3, 5}, nil, {2, 2, 7, -1}, {2, 2, -1, 5}}}
	same := func(a, b int64) int64 { return max(a, b) }
	for _, want := range [][][]int64{
		{{2, 3, 6, 5}, {2, 2, 10, 8}, {2, 2, 10, 5}},
		{{2, 3, 6, 5}, {2, 2, 7, 8}, {2, 2, 7, 5}},
	} {
		if got := Op.OutputShapes(s, same); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.Types, s.Dims = append(s.Types, onnx.Int64), append(s.Dims, []int64{1})
	}
	s.Types = s.Types[:6]
	s.Dims = [][]int64{{2, 6, 3, 8}, {2, 2, -1, 8}, {2, 2, -1, 5}, nil, {2, 2, 7, 8}, {2, 2, 7, 5}}
	if got := Op.OutputShapes(s, same)[1]; !slices.Equal(got, []int64{2, 2, -1, 8}) {
		t.Errorf("an unknown number of new keys gives %v", got)
	}
}

// TestAttentionBodiesInTheEvaluator evaluates the definition of Attention with the built-in evaluator, without
// roundings, and compares it with the formula written out.
func TestAttentionBodiesInTheEvaluator(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 7))
	for _, opset := range []int64{13, 18} { // where bodies differ
		for _, s := range Op.Examples(Op.Types[0], opset) {
			if s.Dims[AttentionQ][2] > 100 {
				continue // a prompt of many blocks is the same to it
			}
			in := optest.RandomInputs(r, s)
			got, err := optest.Evaluate(Op, s, in)
			if err != nil {
				t.Fatalf("%s at opset %d: %v", Op.Overload(s), opset, err)
			}
			for i, x := range naiveAttention(s, in) {
				if y := got[0].F[i]; !(math.Abs(x-y) <= 1e-6*(1+math.Abs(x))) { // attributes are float32
					t.Fatalf("%s at opset %d: element %d is %v, want %v", Op.Overload(s), opset, i, y, x)
				}
			}
		}
	}
}

// naiveAttention returns Y, key by key.
func naiveAttention(s op.Site, in []*reference.Tensor) []float64 {
	// at is an element of input i, in the order of its layout.
	at := func(i int, layout string, b, h, row, c int) float64 {
		d := in[i].Shape
		if layout != "" && s.Attr(layout).String == layoutBSNH {
			h, row = row, h
		}
		return in[i].F[((b*d[1]+h)*d[2]+row)*d[3]+c]
	}
	given := func(i int) bool { return i < len(in) && in[i] != nil }
	dims := func(i int, layout string) (heads, length, width int) {
		d := headsOf(s, i, layout)
		return int(d.heads), int(d.length), int(d.width)
	}
	batch := in[0].Shape[0]
	heads, queries, width := dims(AttentionQ, "q_layout")
	keyHeads, added, valueWidth := dims(AttentionV, "v_layout")
	y := make([]float64, batch*heads*queries*valueWidth)
	for number := range batch * heads * queries {
		b, h, i := number/(heads*queries), number/queries%heads, number%queries
		g := h / (heads / keyHeads)
		if s.Attr("head_order").String == headCyclic {
			g = h % keyHeads
		}
		past := 0
		if given(AttentionPastLength) {
			past = int(in[AttentionPastLength].I[b%in[AttentionPastLength].Len()])
		} else if given(AttentionPastKey) {
			past = in[AttentionPastKey].Shape[2]
		}
		keys := past + added
		element := func(cached, fresh int, layout string, j, c int) float64 {
			if j < past {
				return at(cached, "", b, g, j, c)
			}
			return at(fresh, layout, b, g, j-past, c)
		}
		scores, seen := make([]float64, keys), make([]bool, keys)
		most, sum := math.Inf(-1), 0.0
		if given(AttentionSink) {
			most, sum = in[AttentionSink].F[h], 1
		}
		for j := range keys {
			for c := range width {
				scores[j] += at(AttentionQ, "q_layout", b, h, i, c) *
					element(AttentionPastKey, AttentionK, "k_layout", j, c)
			}
			scores[j] *= float64(s.Attr("scale").Float)
			if limit := float64(s.Attr("softcap").Float); limit > 0 {
				scores[j] = limit * math.Tanh(scores[j]/limit)
			}
			if given(AttentionBias) {
				place, size := 0, 1
				index := []int{b, h, i, j}
				for d := in[AttentionBias].Rank() - 1; d >= 0; d-- {
					n := in[AttentionBias].Shape[d]
					place += index[d+4-in[AttentionBias].Rank()] % n * size
					size *= n
				}
				scores[j] += in[AttentionBias].F[place]
			}
			stands, window := i+keys-queries, int(s.Attr("window").Int)
			seen[j] = (s.Attr("causal").Int == 0 || j <= stands) && (window == 0 || j > stands-window) &&
				(!given(AttentionKeyValid) || in[AttentionKeyValid].I[b*in[AttentionKeyValid].Shape[1]+j] != 0)
			if seen[j] && scores[j] > most {
				sum *= math.Exp(most - scores[j])
				most = scores[j]
			}
			if seen[j] {
				sum += math.Exp(scores[j] - most)
			}
		}
		place := number * valueWidth
		if s.Attr("y_layout").String == layoutBSNH {
			place = ((b*queries+i)*heads + h) * valueWidth
		}
		for j := range keys {
			p := 0.0
			switch {
			case sum > 0 && seen[j]:
				p = math.Exp(scores[j]-most) / sum
			case sum == 0 && s.Attr("empty").String == emptyMean:
				p = 1 / float64(keys)
			}
			for c := range valueWidth {
				y[place+c] += p * element(AttentionPastValue, AttentionV, "v_layout", j, c)
			}
		}
	}
	return y
}
