package fused

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestMixtureBodiesInTheEvaluator evaluates the definitions of TopKRouter and MoE with the built-in evaluator, without
// roundings, and compares them with the formulas written out.
func TestMixtureBodiesInTheEvaluator(t *testing.T) {
	for _, opset := range []int64{13, 15, 18, 24} {
		for _, bodies := range []func(addCase, int64){addRouterBodies, addMoEBodies} {
			r := rand.New(rand.NewPCG(3, 5))
			bodies(func(op *Op, attrs []*onnx.Attribute, types []onnx.DataType, dims ...[]int64) {
				s := Site{Attributes: attrs, Types: types, Dims: dims, Opset: opset}
				name := fmt.Sprintf("%s.%s at opset %d on %v", op.Name, op.Overload(s), opset, dims)
				in := randomInputs(r, s)
				got, err := evaluate(op, s, in)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				want := naiveRouter
				if op == moe {
					want = naiveMoE
				}
				for i, w := range want(s, in) {
					if len(got[i].F)+len(got[i].I) != len(w) {
						t.Fatalf("%s: output %s has %v, want %d elements", name, op.Outputs[i].Name, got[i], len(w))
					}
					for j, x := range w {
						y := math.NaN()
						if got[i].F != nil {
							y = got[i].F[j]
						} else if got[i].I != nil {
							y = float64(got[i].I[j])
						}
						if !(math.Abs(x-y) <= 1e-6*(1+math.Abs(x))) { // attributes are float32
							t.Fatalf("%s: output %s, element %d is %v, want %v", name, op.Outputs[i].Name, j, y, x)
						}
					}
				}
			}, opset)
		}
	}
}

// randomInputs returns inputs of the site's shapes. Integers are experts; one of the four is never chosen.
func randomInputs(r *rand.Rand, s Site) []*reference.Tensor {
	in := make([]*reference.Tensor, len(s.Types))
	for i, typ := range s.Types {
		if !s.has(i) {
			continue
		}
		shape, n := []int{}, 1
		for _, d := range s.Dims[i] {
			shape, n = append(shape, int(d)), n*int(d)
		}
		if typ == onnx.Int64 {
			ids := make([]int64, n)
			for j := range ids {
				ids[j] = []int64{0, 1, 3}[r.IntN(3)]
			}
			in[i] = reference.NewInts(typ, shape, ids)
			continue
		}
		if typ == onnx.Uint8 || typ == onnx.Int8 {
			codes := make([]int64, n) // scales are exponents near 127
			for j := range codes {
				codes[j] = int64(r.IntN(19) - 9)
				if typ == onnx.Uint8 && s.Dims[i][len(s.Dims[i])-1] == panelRows {
					codes[j] += 120
				} else if typ == onnx.Uint8 {
					codes[j] = int64(r.IntN(256))
					if kind := s.Attr("code").String + s.Attr("down_code").String; kind == codeE4M3 &&
						codes[j]&127 == 127 {
						codes[j]-- // no NaN
					}
				}
			}
			in[i] = reference.NewInts(typ, shape, codes)
			continue
		}
		values := make([]float64, n)
		for j := range values {
			values[j] = float64(float32(r.NormFloat64()))
		}
		in[i] = reference.NewFloats(typ, shape, values)
	}
	return in
}

// evaluate runs the definition of a site.
func evaluate(op *Op, s Site, in []*reference.Tensor) ([]*reference.Tensor, error) {
	f, err := op.Function(s)
	if err != nil {
		return nil, err
	}
	m := onnx.New(10, s.Opset)
	var inputs, outputs []*onnx.Value
	for i := range in {
		inputs = append(inputs, m.Graph.NewValue(op.Inputs[i].Name))
	}
	for _, p := range op.Outputs {
		outputs = append(outputs, m.Graph.NewValue(p.Name))
	}
	n := m.Graph.AddNode(op.Name, inputs, outputs, s.Attributes...)
	n.Domain, n.Overload = Domain, f.Overload
	return reference.NewForOpset(s.Opset, []*onnx.Function{f}, reference.Options{Exact: true}).Op(n, in)
}

func naiveScore(score string, v []float64) []float64 {
	out, sum := make([]float64, len(v)), 0.0
	for i, x := range v {
		switch score {
		case scoreSigmoid:
			out[i] = 1 / (1 + math.Exp(-x))
			continue
		case scoreSqrtSoft:
			out[i] = math.Sqrt(math.Log1p(math.Exp(x)))
			continue
		}
		out[i] = math.Exp(x - slices.Max(v))
		sum += out[i]
	}
	for i := range out {
		if score == scoreSoftmax {
			out[i] /= sum
		}
	}
	return out
}

// greatest returns the places of the k greatest elements, the first of equals first.
func greatest(v []float64, k int64) []int {
	at := make([]int, len(v))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int {
		switch {
		case v[a] > v[b]:
			return -1
		case v[a] < v[b]:
			return 1
		}
		return 0
	})
	return at[:k]
}

func naiveRouter(s Site, in []*reference.Tensor) [][]float64 {
	score, first := s.Attr("score").String, s.Attr("order").String == topKFirst
	groups, experts := int(s.Attr("groups").Int), in[0].Shape[in[0].Rank()-1]
	var weights, ids []float64
	for row := 0; row < in[0].Len(); row += experts {
		v := in[0].F[row : row+experts]
		if !first {
			v = naiveScore(score, v)
		}
		choice := slices.Clone(v)
		if len(in) > 1 {
			for i := range choice {
				choice[i] += in[1].F[i]
			}
		}
		if groups > 1 {
			size := experts / groups
			scores := make([]float64, groups)
			for g := range scores {
				sorted := slices.Sorted(slices.Values(choice[g*size : (g+1)*size]))
				if scores[g] = sorted[size-1]; s.Attr("group_score").String == groupTop2Sum {
					scores[g] += sorted[size-2]
				}
			}
			kept := greatest(scores, s.Attr("group_top_k").Int)
			for i := range choice {
				if !slices.Contains(kept, i/size) {
					choice[i] = float64(s.Attr("excluded_score").Float)
				}
			}
		}
		var w []float64
		sum := 0.0
		for _, id := range greatest(choice, s.Attr("top_k").Int) {
			ids, w = append(ids, float64(id)), append(w, v[id])
		}
		if first {
			w = naiveScore(score, w)
		}
		for _, x := range w {
			sum += x
		}
		for _, x := range w {
			if s.Attr("renormalize").Int == 1 {
				x /= sum + float64(s.Attr("epsilon").Float)
			}
			weights = append(weights, x*float64(s.Attr("scale").Float))
		}
	}
	return [][]float64{weights, ids}
}

// gelu is the standard's Gelu, as the evaluator has it.
func gelu(g float64, approximate string) float64 {
	n := onnx.NewFunction("", "", "", 20).Body.NewNode("Gelu", nil, onnx.StringAttr("approximate", approximate))
	x := reference.NewFloats(onnx.Double, nil, []float64{g})
	y, err := reference.NewForOpset(20, nil, reference.Options{}).Op(n, []*reference.Tensor{x})
	if err != nil {
		panic(err)
	}
	return y[0].F[0]
}

func naiveMoE(s Site, in []*reference.Tensor) [][]float64 {
	hidden, k := in[MoEX].Shape[in[MoEX].Rank()-1], in[MoEIDs].Shape[in[MoEIDs].Rank()-1]
	packed := in[MoEGateUp].Len() / in[MoEGateUp].Shape[0] / hidden
	inner := in[MoEDown].Len() / in[MoEDown].Shape[0] / hidden
	// product is an expert's matrix times x.
	product := func(w, bias int, layout string, e int, x []float64, out int) []float64 {
		y := make([]float64, out)
		at := e * out * len(x)
		for i := range y {
			for j, v := range x {
				if s.Attr(layout).String == layoutOutIn {
					y[i] += in[w].F[at+i*len(x)+j] * v
				} else {
					y[i] += in[w].F[at+j*out+i] * v
				}
			}
			if s.has(bias) {
				y[i] += in[bias].F[e*out+i]
			}
		}
		return y
	}
	activation := func(g float64) float64 {
		switch s.Attr("activation").String {
		case "silu":
			return g / (1 + math.Exp(-float64(s.Attr("alpha").Float)*g))
		case "gelu":
			return gelu(g, "none")
		case "gelu_tanh":
			return gelu(g, "tanh")
		case "relu2":
			return max(g, 0) * max(g, 0)
		}
		return max(g, 0)
	}
	limit := float64(s.Attr("limit").Float)
	y := make([]float64, in[MoEX].Len())
	for choice, id := range in[MoEIDs].I {
		token := choice / k * hidden
		h := product(MoEGateUp, MoEGateUpBias, "gate_up_layout", int(id), in[MoEX].F[token:token+hidden], packed)
		a := make([]float64, inner)
		for i := range a {
			g, u := h[i], 1.0
			switch s.Attr("packing").String {
			case packHalves:
				u = h[inner+i]
			case packInterleaved:
				g, u = h[2*i], h[2*i+1]
			}
			if limit > 0 {
				g, u = min(g, limit), max(min(u, limit), -limit)
			}
			a[i] = activation(g) * (u + float64(s.Attr("up_offset").Float))
		}
		for i, v := range product(MoEDown, MoEDownBias, "down_layout", int(id), a, hidden) {
			y[token+i] += in[MoEWeights].F[choice] * v
		}
	}
	return [][]float64{y}
}

// TestMoEBodyReadsChosenExpertsAlone has experts that are computed as they are read: the definition must not ask for
// one that no token chose, so that a site of many experts is checked in the memory of a few.
func TestMoEBodyReadsChosenExpertsAlone(t *testing.T) {
	const experts, hidden, inner = 64, 64, 32
	chosen := []int64{0, 63, 5, 6, 5, 40}
	for _, layout := range []string{layoutOutIn, layoutInOut} {
		weights := func(shape ...int) *reference.Tensor {
			size := shape[1] * shape[2]
			v, err := reference.NewLazy(onnx.Float, shape, func(dst []float64, at int) error {
				for i := range dst {
					if e := int64((at + i) / size); !slices.Contains(chosen, e) {
						return fmt.Errorf("expert %d is read, which nothing chose", e)
					}
					dst[i] = float64((at+i)%7) / 64
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		up, down := weights(experts, 2*inner, hidden), weights(experts, hidden, inner)
		if layout == layoutInOut {
			up, down = weights(experts, hidden, 2*inner), weights(experts, inner, hidden)
		}
		x := reference.NewFloats(onnx.Float, []int{3, hidden}, slices.Repeat([]float64{0.5}, 3*hidden))
		w := reference.NewFloats(onnx.Float, []int{3, 2}, []float64{1, 2, 3, 4, 5, 6})
		ids := reference.NewInts(onnx.Int64, []int{3, 2}, chosen)
		s := Site{Attributes: moeForm{up: layout, down: layout}.attrs(),
			Types: []onnx.DataType{onnx.Float, onnx.Float, onnx.Int64, onnx.Float, onnx.Float}, Opset: 18}
		if _, err := evaluate(moe, s, []*reference.Tensor{x, w, ids, up, down}); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
	}
}
