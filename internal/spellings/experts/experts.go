package experts

import (
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// expert is the form of a block's experts.
type expert struct {
	gated       bool
	interleaved bool    // gate and up alternate
	upFirst     bool    // the halves are up and gate
	gate, up    *linear // gate holds both if up is nil
	down        *linear
	act         string // silu, quick, gelu, gelu_tanh, relu or clamped
	clamping    writer.Clamping
}

// linear is a matrix, and perhaps a bias, of each expert.
type linear struct {
	in, out int
	inOut   bool          // a matrix is [in, out], not [out, in]
	gemm    bool          // product and bias are one node
	w, b    *onnx.Value   // of all experts
	own     []*onnx.Value // one for each expert, instead of w
	ownBias []*onnx.Value
	splits  map[split][]*onnx.Value
}

// split is a stack that a graph splits into its experts.
type split struct {
	graph *onnx.Graph
	stack *onnx.Value
}

// newExpert chooses a form, with one constant for the weights of all experts or one for each.
func (r *routed) newExpert(stacked bool) *expert {
	e := &expert{gated: !r.Chance(3), interleaved: r.Chance(3), upFirst: r.Chance(5)}
	e.act = writer.Choose(r.Writer, "silu", "silu", "quick", "gelu", "gelu_tanh", "relu")
	if e.gated && r.Chance(5) {
		e.act = "clamped"
	}
	if r.Half() && (e.act == "gelu" || e.act == "gelu_tanh") {
		e.act = "silu" // its constants are too coarse to identify the gelu
	}
	e.clamping = writer.NewClamping(r.Writer)
	inOut, downInOut, bias := r.Chance(2), r.Chance(2), r.Chance(2)
	apart := e.gated && r.Chance(3) // two products
	n := r.inner
	if e.gated && !apart {
		n = 2 * r.inner
	}
	e.gate = r.newLinear(stacked, bias, inOut, r.hidden, n)
	if apart {
		e.up = r.newLinear(stacked, bias, inOut, r.hidden, n)
	}
	e.down = r.newLinear(stacked, bias || r.Chance(6), downInOut, r.inner, r.hidden)
	return e
}

func (r *routed) newLinear(stacked, bias, inOut bool, in, out int) *linear {
	l := &linear{in: in, out: out, inOut: inOut, gemm: r.Chance(3), splits: map[split][]*onnx.Value{}}
	dims := []int{out, in}
	if inOut {
		dims = []int{in, out}
	}
	if stacked {
		l.w = r.matrix(r.Type, append([]int{r.experts}, dims...)...)
		if bias {
			l.b = r.matrix(r.Type, r.experts, out)
		}
		return l
	}
	for range r.experts {
		l.own = append(l.own, r.matrix(r.Type, dims...))
		if bias {
			l.ownBias = append(l.ownBias, r.matrix(r.Type, out))
		}
	}
	return l
}

// alike makes f repeat its choices for the same form: an exporter writes all experts alike.
func (r *routed) alike(form uint64, f func()) {
	keep := r.Rand
	r.Rand = rand.New(rand.NewPCG(form, 0))
	f()
	r.Rand = keep
}

// of returns expert i's part of a stack: i is a number, or a value without axes.
func (r *routed) of(l *linear, stack *onnx.Value, i any) *onnx.Value {
	at, ok := i.(int)
	if !ok {
		return r.Op("Gather", stack, i)
	}
	switch r.Rand.IntN(3) {
	case 0:
		return r.Op("Gather", stack, r.Constant(writer.ScalarInt(int64(at))), onnx.IntAttr("axis", 0))
	case 1:
		one := r.Op("Slice", stack, r.Ints(int64(at)), r.Ints(int64(at)+1), r.Ints(0))
		return r.Op("Squeeze", one, r.Ints(0))
	}
	cut := split{r.Graph, stack}
	if l.splits[cut] == nil {
		sizes := make([]int64, r.experts)
		for j := range sizes {
			sizes[j] = 1
		}
		r.alike(0, func() {
			l.splits[cut] = r.Ops("Split", r.experts, stack, r.Ints(sizes...), onnx.IntAttr("axis", 0))
		})
	}
	return r.Op("Squeeze", l.splits[cut][at], r.Ints(0))
}

// linear multiplies rows by the matrix of expert i, and adds its bias.
func (r *routed) linear(l *linear, x *onnx.Value, i any) *onnx.Value {
	var m, b *onnx.Value
	if l.own != nil {
		if m = l.own[i.(int)]; l.ownBias != nil {
			b = l.ownBias[i.(int)]
		}
	} else if m = r.of(l, l.w, i); l.b != nil {
		b = r.of(l, l.b, i)
	}
	if l.gemm {
		trans := int64(1)
		if l.inOut {
			trans = 0
		}
		return r.Op("Gemm", append([]any{x, m, onnx.IntAttr("transB", trans)}, anyOf(b)...)...)
	}
	if !l.inOut {
		m = r.Op("Transpose", m, onnx.IntsAttr("perm", []int64{1, 0}))
	}
	y := r.Op("MatMul", x, m)
	if b != nil {
		y = r.add(y, b)
	}
	return y
}

// anyOf returns a list of v, or nil if v is nil.
func anyOf(v *onnx.Value) []any {
	if v == nil {
		return nil
	}
	return []any{v}
}

// one sends rows through expert i.
func (r *routed) one(e *expert, act string, x *onnx.Value, i any) *onnx.Value {
	return r.linear(e.down, r.hiddenOf(e, act, 2, func(l *linear) *onnx.Value { return r.linear(l, x, i) }), i)
}

// hiddenOf returns the input of the last product. times multiplies the tokens, a value of this rank.
func (r *routed) hiddenOf(e *expert, act string, rank int, times func(l *linear) *onnx.Value) *onnx.Value {
	h := times(e.gate)
	switch {
	case e.up != nil:
		return r.activate(e, h, times(e.up), act)
	case !e.gated:
		return r.activate(e, h, nil, act)
	}
	c := writer.Channels{Writer: r.Writer, Rank: rank, Size: 2 * r.inner}
	var parts []*onnx.Value
	if e.interleaved {
		parts = []*onnx.Value{c.Every(h, 2, 0), c.Every(h, 2, 1)}
	} else {
		parts = c.Cut(h, r.inner, r.inner)
	}
	if e.upFirst {
		parts[0], parts[1] = parts[1], parts[0]
	}
	return r.activate(e, parts[0], parts[1], act)
}

// activate writes an expert's computation between its products; up is nil without a gate.
func (r *routed) activate(e *expert, gate, up *onnx.Value, act string) *onnx.Value {
	// Experts without a gate, SiLU with a factor, and the magnitude of a nonnegative value.
	r.Smaller = r.Smaller || r.Change == "up missing" || r.Change == "tanh instead of erf" ||
		r.Change == "magnitude of the activation" && act == "relu"
	if act == "clamped" && up != nil {
		return r.ClampedSwiGLU(gate, up, e.clamping)
	}
	apply := func(x *onnx.Value) *onnx.Value {
		switch act {
		case "relu":
			return r.Op("Relu", x)
		case "gelu", "gelu_tanh":
			return r.GELU(x, r.Type, act == "gelu_tanh")
		case "quick":
			return r.Product(x, r.Sigmoid(r.Product(x, r.Scalar(r.Type, 1.702)), r.Type))
		}
		return r.Product(x, r.Sigmoid(x, r.Type))
	}
	if up == nil {
		return apply(gate)
	}
	if y := r.GLUEdits(gate, up, apply); y != nil {
		return y
	}
	return r.Product(apply(gate), up)
}

// weightsOf returns the weights in the graph's type.
func (r *routed) weightsOf() *onnx.Value {
	if r.Half() {
		return r.Cast(r.weights, r.Type)
	}
	return r.weights
}

// result reshapes the rows to the shape of the tokens, and perhaps adds the tokens.
func (r *routed) result(y *onnx.Value) []*onnx.Value {
	if r.tokens != r.x {
		shape := r.Op("Shape", r.tokens)
		if r.Chance(2) {
			shape = r.Op("Concat", r.Op("Slice", shape, r.Ints(0), r.Ints(2)), r.Ints(int64(r.hidden)),
				onnx.IntAttr("axis", 0))
		}
		y = r.Op("Reshape", y, shape)
	}
	if r.onto {
		y = r.add(r.tokens, y)
	}
	return []*onnx.Value{y}
}
