package spellings

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// detours changes the spelling of a finished model but not its meaning: it swaps operands, inserts nodes that together
// change nothing, computes subgraphs twice, and adds readers of inner values, which read reports.
func detours(m *onnx.Model, r *rand.Rand, w *writer.Writer) (read bool) {
	p := []float64{0, 0, 0.08, 0.2}[r.IntN(4)]
	d := &detourer{r: r, opset: m.Opset(""), empty: w.Empty, routed: w.Routed, facts: infer.Analyze(m),
		known: map[*onnx.Value]*onnx.Value{}, before: map[*onnx.Node][]*onnx.Node{}}
	for _, g := range m.Graphs() {
		d.g, d.function = g, slices.ContainsFunc(m.Functions, func(f *onnx.Function) bool { return f.Body == g })
		for range 3 {
			if !w.Alone {
				d.duplicate(p)
			}
		}
		for _, n := range slices.Clone(g.Nodes) {
			d.commute(n)
			for i, v := range n.Inputs {
				if v != nil && !slices.Contains(w.Bare, v) && len(n.Subgraphs()) == 0 && r.Float64() < p {
					d.at = n
					n.SetInput(i, d.detour(v))
				}
			}
		}
		d.insert()
	}
	if w.Place == writer.MainGraph && !w.Alone && r.IntN(2) == 0 {
		d.g = m.Graph
		d.read(1 + r.IntN(2))
		return true
	}
	return false
}

type detourer struct {
	r        *rand.Rand
	opset    int64
	empty    bool // tensors may have no elements
	routed   bool // the block sends tokens to experts
	facts    *infer.Facts
	known    map[*onnx.Value]*onnx.Value // copies: the value with the same type and shape
	g        *onnx.Graph
	function bool // g is the body of a function, which has no initializers
	at       *onnx.Node
	before   map[*onnx.Node][]*onnx.Node
}

// add puts a node before the detour's target.
func (d *detourer) add(op string, in []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	n := d.g.NewNode(op, in, attrs...)
	v := d.g.NewValue("detour_" + op)
	if d.g.Parent != nil {
		v = d.g.NewValue("inner_detour_" + op)
	}
	n.TakeOutput(0, v)
	d.before[d.at] = append(d.before[d.at], n)
	return v
}

func (d *detourer) one(op string, v *onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	return d.add(op, []*onnx.Value{v}, attrs...)
}

func (d *detourer) insert() {
	d.g.InsertAt(d.before)
	clear(d.before)
}

func (d *detourer) ints(v ...int64) *onnx.Value {
	if d.function || d.r.IntN(2) == 0 {
		return d.add("Constant", nil, onnx.IntsAttr("value_ints", v))
	}
	name := "detour_c"
	if d.g.Parent != nil {
		name = "inner_detour_c"
	}
	return d.g.AddInitializer(onnx.NewInt64s(name, v))
}

func (d *detourer) original(v *onnx.Value) *onnx.Value {
	if w := d.known[v]; w != nil {
		return w
	}
	return v
}

func (d *detourer) commute(n *onnx.Node) {
	switch n.OpType {
	case "Add", "Mul", "Min", "Max", "Sum":
		if len(n.Inputs) == 2 && n.Inputs[0] != n.Inputs[1] && d.r.IntN(3) == 0 {
			a, b := n.Inputs[0], n.Inputs[1]
			n.SetInput(0, b)
			n.SetInput(1, a)
		}
	}
}

// detour adds nodes that compute a value equal to v.
func (d *detourer) detour(v *onnx.Value) *onnx.Value {
	o := d.original(v)
	t := d.facts.DataType(o)
	rank, ranked := d.facts.Rank(o)
	if !t.IsFloat() {
		return d.one("Identity", v)
	}
	if d.empty && d.opset < 14 { // a 0 in a shape would be ambiguous for a tensor without elements
		return d.one("Identity", v)
	}
	back := func(w *onnx.Value) *onnx.Value {
		shape := d.one("Shape", v)
		if d.opset < 14 || !d.empty {
			return d.add("Reshape", []*onnx.Value{w, shape})
		}
		return d.add("Reshape", []*onnx.Value{w, shape}, onnx.IntAttr("allowzero", 1))
	}
	switch d.r.IntN(12) {
	case 0:
		return d.one("Cast", v, onnx.IntAttr("to", int64(t)))
	case 1, 2: // to a wider type and back
		wide := onnx.Double
		if t != onnx.Float && d.r.IntN(3) > 0 {
			wide = onnx.Float
		}
		return d.one("Cast", d.one("Cast", v, onnx.IntAttr("to", int64(wide))), onnx.IntAttr("to", int64(t)))
	case 3: // to its own shape
		if ranked && d.r.IntN(2) == 0 {
			return d.add("Reshape", []*onnx.Value{v, d.ints(make([]int64, rank)...)})
		}
		return back(v)
	case 4: // to another shape and back
		return back(d.one("Flatten", v, onnx.IntAttr("axis", int64(d.r.IntN(max(rank, 1))))))
	case 5:
		return back(d.add("Reshape", []*onnx.Value{v, d.ints(-1)}))
	case 6, 7:
		if ranked {
			axis := int64(d.r.IntN(rank + 1))
			u := d.add("Unsqueeze", []*onnx.Value{v, d.ints(writer.Choose(&writer.Writer{Rand: d.r}, axis,
				axis-int64(rank)-1))})
			return d.add("Squeeze", []*onnx.Value{u, d.ints(axis)})
		}
	case 8, 9:
		if ranked && rank > 1 {
			return d.transposed(v, rank)
		}
	case 10: // a slice of everything
		if ranked && rank > 0 {
			return d.add("Slice", []*onnx.Value{v, d.ints(0), d.ints(math.MaxInt64), d.ints(int64(d.r.IntN(rank)))})
		}
	case 11:
		return d.add("Expand", []*onnx.Value{v, d.one("Shape", v)})
	}
	return d.one("Identity", v)
}

// transposed swaps axes and swaps them back.
func (d *detourer) transposed(v *onnx.Value, rank int) *onnx.Value {
	perm, back := make([]int64, rank), make([]int64, rank)
	for i, p := range d.r.Perm(rank) {
		perm[i], back[p] = int64(p), int64(i)
	}
	return d.one("Transpose", d.one("Transpose", v, onnx.IntsAttr("perm", perm)), onnx.IntsAttr("perm", back))
}

// duplicate repeats the computation of shared values for some of their readers.
func (d *detourer) duplicate(p float64) {
	for _, n := range slices.Clone(d.g.Nodes) {
		for i, v := range n.Inputs {
			if v == nil || v.Producer == nil || v.Producer.Graph != d.g || len(v.Uses()) < 2 ||
				len(v.Producer.Subgraphs()) > 0 ||
				v.Producer.Domain != "" || !d.repeats(v.Producer) || d.r.Float64() >= 2*p {
				continue
			}
			d.at = n
			n.SetInput(i, d.again(v))
		}
	}
	d.insert()
}

// repeated lists the ops that are repeated in blocks that send tokens to experts: the ones that exporters write
// wherever they need them. (They write a choice of experts, and an expert's computation, once.)
var repeated = onnx.Words(`
	Shape Constant Cast Reshape Unsqueeze Squeeze Identity Transpose Expand Tile Flatten Concat Slice Equal
	ConstantOfShape Range
`)

// repeats reports whether a node may occur a second time.
func (d *detourer) repeats(n *onnx.Node) bool {
	if v := n.Attr("value"); n.Is("Constant") && v != nil && v.Tensor != nil && len(v.Tensor.Dims) > 1 {
		return !d.routed // a weight
	}
	return !d.routed || repeated[n.OpType]
}

// again computes v a second time.
func (d *detourer) again(v *onnx.Value) *onnx.Value {
	p := v.Producer
	in := slices.Clone(p.Inputs)
	for i, u := range in {
		if u != nil && u.Producer != nil && u.Producer.Graph == d.g && len(u.Producer.Subgraphs()) == 0 &&
			d.repeats(u.Producer) && d.r.IntN(2) == 0 {
			in[i] = d.again(u)
		}
	}
	n := d.g.NewNode(p.OpType, in, p.Attributes...)
	var copied *onnx.Value
	for i, o := range p.Outputs {
		hint := "again"
		if d.g.Parent != nil {
			hint = "inner_again"
		}
		w := d.g.NewValue(hint)
		n.TakeOutput(i, w)
		d.known[w] = d.original(o)
		if o == v {
			copied = w
		}
	}
	d.before[d.at] = append(d.before[d.at], n)
	return copied
}

// read makes inner values outputs of the model, or adds a node outside the block that reads them.
func (d *detourer) read(times int) {
	for range times {
		n := d.g.Nodes[d.r.IntN(len(d.g.Nodes))]
		if len(n.Outputs) == 0 || n.Outputs[0].IsOutput() {
			continue
		}
		v := n.Outputs[0]
		t := d.facts.DataType(d.original(v))
		if !t.IsFloat() || v.Constant() != nil {
			continue
		}
		if d.r.IntN(2) == 0 {
			o := d.g.NewValue("read")
			d.g.AddNode("Abs", []*onnx.Value{v}, []*onnx.Value{o})
			v = o
		}
		v.SetType(onnx.Type{DataType: t})
		d.g.AddOutput(v)
	}
}
