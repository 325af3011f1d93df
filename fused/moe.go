package fused

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The values of MoE's string attributes.
const (
	packHalves      = "halves"
	packInterleaved = "interleaved"
	packNone        = "none"
	layoutOutIn     = "out_in"
	layoutInOut     = "in_out"
)

// The inputs of MoE, in order.
const (
	MoEX = iota
	MoEWeights
	MoEIDs
	MoEGateUp
	MoEDown
	MoEGateUpBias
	MoEDownBias
)

var moeInputs = []Param{
	{Name: "X", Type: "T", Doc: "[..., H]; its leading dimensions are the tokens"},
	{Name: "weights", Type: "W", Doc: "[..., k]: as many tokens"},
	{Name: "ids", Type: "int64",
		Doc: "[..., k]: as many tokens; numbers of experts, 0 to E-1, in any order, repeated or not"},
	{Name: "gate_up", Type: "V", Doc: "[E, 2I, H] with gate_up_layout=out_in, [E, H, 2I] with in_out; I in the place " +
		"of 2I with packing=none"},
	{Name: "down", Type: "V", Doc: "[E, H, I] with down_layout=out_in, [E, I, H] with in_out"},
	{Name: "gate_up_bias", Type: "V", Doc: "[E, 2I]; [E, I] with packing=none", Optional: true},
	{Name: "down_bias", Type: "V", Doc: "[E, H]", Optional: true},
}

// gateRules are those of a gate that packing may leave out.
var gateRules = []Rule{alphaRule,
	{Attribute: "limit", Bounds: only(0), With: "packing", Is: []string{packNone}},
	{Attribute: "up_offset", Bounds: only(0), With: "packing", Is: []string{packNone}},
}

var moeActivations = []string{"silu", "gelu", "gelu_tanh", "relu", "relu2"}

// moe is the experts of a mixture, each token sent through those that the router chose.
var moe = &Op{
	Name: MoEName,
	Summary: "The experts of a mixture: every token goes through the k that were chosen for it, and the results are " +
		"added up with weights.",
	Formula: []string{
		"for a token t and an expert e = ids[t, j]; all in float32",
		"  h = gate_up[e] . X[t] + gate_up_bias[e];  gate_up[e] as a matrix of [2I, H], whichever way it is stored",
		"  packing=halves:      gate = h[:I], up = h[I:]",
		"  packing=interleaved: gate = h[0::2], up = h[1::2]",
		"  packing=none:        a = activation(h)",
		"  g = limit > 0 ? min(gate, limit) : gate;  u = limit > 0 ? clamp(up, -limit, limit) : up;  a = " +
			"activation(g) * (u + up_offset)",
		"  activation: silu, gelu and gelu_tanh as in GLU; relu: max(g, 0); relu2: max(g, 0)^2",
		"  y[j] = weights[t, j] * (down[e] . a + down_bias[e])",
		"Y[t] = round_T(y[0] + ... + y[k-1])",
	},
	Inputs:  moeInputs,
	Outputs: []Param{{Name: "Y", Type: "T", Doc: "shape of X"}},
	Attributes: append(within("gate", "GLU", gateAttributes(moeActivations)), []AttributeSpec{
		{Name: "packing", Type: onnx.AttrString, Values: []string{packHalves, packInterleaved, packNone},
			Doc: "where gate and up lie in the first product; none: there is no gate, and what is activated is the " +
				"whole"},
		{Name: "gate_up_layout", Type: onnx.AttrString, Values: []string{layoutOutIn, layoutInOut},
			Field: "gate_up_in_out", Doc: "how the matrices of gate_up are stored"},
		{Name: "down_layout", Type: onnx.AttrString, Values: []string{layoutOutIn, layoutInOut},
			Field: "down_in_out", Doc: "how those of down are"},
	}...),
	Rules:     gateRules,
	Family:    mixtureFamily,
	Devices:   Devices(),
	Types:     moeTypes(),
	Variables: []Variable{{Name: "W", Doc: "float32 or the type of X"}},
	Source: "Shazeer et al., Outrageously Large Neural Networks (2017); out_in is how torch.nn.Linear stores " +
		"weights, in_out and interleaved are gpt-oss",
	check:    moeShapes,
	shapes:   moeOutputShapes,
	examples: moeExamples,
	overload: moeOverload,
	define:   moeBody,
}

func moeTypes() []Combination {
	var list []Combination
	for _, c := range independent("T", "W", "V") {
		if w := c.Types["W"]; w == f32 || w == c.Types["T"] {
			list = append(list, c)
		}
	}
	return list
}

// moeOutputShapes: Y is like X, whose width is that of the experts too.
func moeOutputShapes(s Site, equal func(a, b int64) int64) [][]int64 {
	x := s.dims(MoEX)
	if w, ids := s.dims(MoEWeights), s.dims(MoEIDs); len(w) > 0 && len(ids) > 0 {
		equal(w[len(w)-1], ids[len(ids)-1])
	}
	hidden := func(input int, layout string, outIn int) {
		w := s.dims(input)
		if len(w) != 3 || len(x) == 0 {
			return
		}
		at := outIn
		if s.Attr(layout).String == layoutInOut {
			at = 3 - outIn
		}
		x = withLast(x, equal(x[len(x)-1], w[at]))
	}
	hidden(MoEGateUp, "gate_up_layout", 2)
	hidden(MoEDown, "down_layout", 1)
	return [][]int64{x}
}

// moeExamples has each activation in each packing, the four pairs of layouts in turn, with and without biases.
func moeExamples(s Site) [][][]int64 {
	attrs := Read[MoE](s.Attributes)
	const experts, hidden, inner = 4, 22, 10
	packing, layouts := attrs.Packing, []string{layoutOutIn, layoutInOut}
	up, down := attrs.GateUpLayout, attrs.DownLayout
	turn := slices.Index(moeActivations, attrs.Activation)
	if gateClamped(s) {
		turn = len(moeActivations)
	}
	first, second := layouts[turn%2], layouts[turn/2%2]
	if packing == packInterleaved {
		first, second = second, first
	}
	if !gateTried(s) || up != first || down != second {
		return nil
	}
	packed := int64(2 * inner)
	if packing == packNone {
		if gateClamped(s) {
			return nil
		}
		packed = inner
	}
	matrix := func(layout string, out, in int64) []int64 {
		if layout == layoutInOut {
			out, in = in, out
		}
		return []int64{experts, out, in}
	}
	dims := [][]int64{{2, 3, hidden}, {6, 2}, {6, 2}, matrix(up, packed, hidden), matrix(down, hidden, inner)}
	return [][][]int64{dims, append(slices.Clip(dims), []int64{experts, packed}, []int64{experts, hidden})}
}

func moeOverload(s Site) string {
	attrs := Read[MoE](s.Attributes)
	name := gateOverload(s) + "_" + attrs.Packing + "_" + attrs.GateUpLayout + "_" +
		attrs.DownLayout
	if s.has(MoEGateUpBias) {
		name += "_gate_up_bias"
	}
	if s.has(MoEDownBias) {
		name += "_down_bias"
	}
	if !moeScans(s) {
		name += "_gathered"
	}
	return name
}

// choicesSupport checks what is known of the shapes of X, weights and ids.
func choicesSupport(op string, s Site) error {
	for i := MoEX; i <= MoEIDs; i++ {
		if d := s.dims(i); d != nil && len(d) == 0 {
			return fmt.Errorf("mojo.%s takes %s of rank 1 or more, not of rank 0", op, moeInputs[i].Name)
		}
		if a, b := tokens(s.dims(MoEX)), tokens(s.dims(i)); a >= 0 && b >= 0 && a != b {
			return fmt.Errorf("mojo.%s takes as many %s as tokens: X is %v, %s are %v", op, moeInputs[i].Name,
				s.dims(MoEX), moeInputs[i].Name, s.dims(i))
		}
	}
	if a, b := s.lastDim(MoEWeights), s.lastDim(MoEIDs); a >= 0 && b >= 0 && a != b {
		return fmt.Errorf("mojo.%s takes as many weights as ids: weights are %v, ids are %v", op, s.dims(MoEWeights),
			s.dims(MoEIDs))
	}
	return nil
}

// moeShapes checks what is known of the shapes against each other.
func moeShapes(s Site) error {
	attrs := Read[MoE](s.Attributes)
	wrong := func(i int, want string) error {
		return fmt.Errorf("mojo.MoE takes %s of shape %s: X is %v, gate_up %v, down %v, %s %v", moeInputs[i].Name, want,
			s.dims(MoEX), s.dims(MoEGateUp), s.dims(MoEDown), moeInputs[i].Name, s.dims(i))
	}
	if err := choicesSupport(MoEName, s); err != nil {
		return err
	}
	hidden, experts, inner, packed := s.lastDim(MoEX), int64(-1), int64(-1), int64(-1)
	// unify makes sure that a dimension is the one that another input told, or takes note of it.
	unify := func(dim int64, known *int64) bool {
		if *known < 0 {
			*known = dim
		}
		return dim < 0 || dim == *known
	}
	matrix := func(i int, layout string, out, in *int64) error {
		want, rows, columns := "[E, out, in]", out, in
		if layout == layoutInOut {
			want, rows, columns = "[E, in, out]", in, out
		}
		d := s.dims(i)
		if d != nil && (len(d) != 3 || !unify(d[0], &experts) || !unify(d[1], rows) || !unify(d[2], columns)) {
			return wrong(i, want)
		}
		return nil
	}
	bias := func(i int, out *int64) error {
		if d := s.dims(i); d != nil && (len(d) != 2 || !unify(d[0], &experts) || !unify(d[1], out)) {
			return wrong(i, "[E, out]")
		}
		return nil
	}
	if err := matrix(MoEGateUp, attrs.GateUpLayout, &packed, &hidden); err != nil {
		return err
	}
	factor := int64(2)
	if attrs.Packing == packNone {
		factor = 1
	}
	if packed >= 0 {
		if packed%factor != 0 {
			return fmt.Errorf("mojo.MoE takes gate_up of an even number of rows with packing %q: gate_up is %v",
				attrs.Packing, s.dims(MoEGateUp))
		}
		inner = packed / factor
	}
	if err := matrix(MoEDown, attrs.DownLayout, &hidden, &inner); err != nil {
		return err
	}
	if packed < 0 && inner >= 0 {
		packed = inner * factor
	}
	if err := bias(MoEGateUpBias, &packed); err != nil {
		return err
	}
	return bias(MoEDownBias, &hidden)
}

// tokens is the product of all dimensions but the last, -1 where one is unknown.
func tokens(dims []int64) int64 {
	if len(dims) == 0 {
		return -1
	}
	n := int64(1)
	for _, d := range dims[:len(dims)-1] {
		if d < 0 {
			return -1
		}
		n *= d
	}
	return n
}
