package learn

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// maxTerms bounds the nodes of a pattern.
const maxTerms = 96

// term is a value of the region as the pattern writes it: a leaf, or an output of a node.
type term struct {
	leaf notation.Expr
	op   string        // of the node
	call notation.Call // without its arguments
	args []*term
	uses int    // by other terms, and as a result
	name string // of its statement, "" if it is written inside another
	key  string // equal for terms that are written alike
}

// readTerms reads the nodes between the operands and the results of the match.
func (w *writer) readTerms() error {
	for _, v := range w.m.Outputs {
		t, err := w.read(v)
		if err != nil {
			return err
		}
		if t.leaf != nil {
			return fmt.Errorf("no node computes %q", v.Name)
		}
		w.roots = append(w.roots, t)
	}
	for i, t := range w.roots {
		if t.name != "" {
			return fmt.Errorf("two results are the same value")
		}
		t.name = w.results[i]
		w.follow(t)
	}
	return nil
}

// follow appends a term to the order, after its operands, and counts the readers of each.
func (w *writer) follow(t *term) {
	if t.uses++; t.uses > 1 || t.leaf != nil {
		return
	}
	for _, a := range t.args {
		w.follow(a)
	}
	w.order = append(w.order, t)
}

// read returns the term of a value.
func (w *writer) read(v *onnx.Value) (*term, error) {
	if v == nil {
		return leaf(notation.Wildcard{}), nil
	}
	v = w.Resolve(v)
	for u, t := range w.terms {
		if w.Same(u, v) {
			return t, nil
		}
	}
	t, err := w.readNew(v)
	if err == nil {
		w.terms[v] = t
	}
	return t, err
}

func leaf(e notation.Expr) *term { return &term{leaf: e, key: e.String()} }

func (w *writer) readNew(v *onnx.Value) (*term, error) {
	if t := w.row(v); t != nil {
		return t, nil
	}
	if name, ok := w.inputs[v]; ok {
		return leaf(&notation.Name{Name: name}), nil
	}
	if x, t, ok := w.Scalar(v); ok {
		if t.IsFloat() {
			return leaf(w.number(x)), nil
		}
		return leaf(&notation.Number{Value: x}), nil
	}
	if x, ok := w.Filled(v); ok {
		return w.filled(x), nil
	}
	if h := w.HalfTurn(v); h != nil {
		return w.add(&term{call: notation.Call{Op: "HalfTurn", Attrs: []notation.AttrPattern{
			{Name: "layout", Text: &h.Layout, Capture: -1}, {Name: "sign", Number: &h.Sign, Capture: -1}}}}), nil
	}
	if p, ok := w.Part(v); ok {
		of, err := w.read(p.Of)
		if err != nil {
			return nil, err
		}
		return w.add(&term{call: notation.Call{Op: "Channels", Attrs: []notation.AttrPattern{w.channels("from", p.From),
			w.channels("size", p.Size), {Name: "step", Number: pointer(p.Step), Capture: -1}}}, args: []*term{of}}), nil
	}
	if c := v.Constant(); c != nil {
		return nil, fmt.Errorf("it reads the constant %q of %d elements, which the notation cannot express", v.Name,
			c.Len())
	}
	return w.readNode(v)
}

// row returns the term of weights that apply to all rows.
func (w *writer) row(v *onnx.Value) *term {
	if w.IsData(v) {
		return nil
	}
	operand := w.Row(v)
	if operand == nil {
		return nil
	}
	for i, u := range w.m.Inputs {
		if name := w.params[i]; !w.IsData(u) && unshaped(operand) == unshaped(w.Resolve(u)) {
			w.rows[name] = true
			return w.add(&term{call: notation.Call{Op: "Row"}, args: []*term{leaf(&notation.Name{Name: name})}})
		}
	}
	return nil
}

// unshaped goes back over nodes that only reshape.
func unshaped(v *onnx.Value) *onnx.Value {
	for range match.MaxDetour {
		if v.Producer == nil || match.OpKind(v.Producer) != "Reshape" || v.Producer.Input(0) == nil {
			break
		}
		v = v.Producer.Input(0)
	}
	return v
}

// channels returns the attribute for a number or an index of channels.
func (w *writer) channels(name string, n int64) notation.AttrPattern {
	a := notation.AttrPattern{Name: name, Capture: -1}
	if a.As = w.count(float64(n)); a.As == "" {
		a.Number = pointer(n)
	}
	return a
}

func pointer(n int64) *float64 {
	x := float64(n)
	return &x
}

func (w *writer) filled(x float64) *term {
	a := notation.AttrPattern{Name: "value", Capture: -1}
	if name := w.generalized(x); name != "" {
		a.As, a.Capture = name, 0
	} else {
		x = short(x)
		a.Number = &x
	}
	return w.add(&term{call: notation.Call{Op: "Filled", Attrs: []notation.AttrPattern{a}}})
}

func (w *writer) readNode(v *onnx.Value) (*term, error) {
	n := v.Producer
	switch {
	case n == nil || n.Graph != w.Graph:
		return nil, fmt.Errorf("it reads %q, which is not an operand of the op", v.Name)
	case len(n.Subgraphs()) > 0:
		return nil, fmt.Errorf("its node %q (%s) contains a graph", n.Name, n.OpType)
	case !onnx.IsStandardDomain(n.Domain) && n.Domain != onnx.Microsoft:
		return nil, fmt.Errorf("its node %q calls %s.%s, a function of the model", n.Name, n.Domain, n.OpType)
	case len(n.Outputs) > 1:
		return nil, fmt.Errorf("its node %q (%s) has several outputs", n.Name, n.OpType)
	case w.nodes >= maxTerms:
		return nil, fmt.Errorf("it has more than %d nodes", maxTerms)
	}
	w.nodes++
	t := &term{call: notation.Call{Op: n.OpType}}
	if !onnx.IsStandardDomain(n.Domain) {
		t.call.Domain = n.Domain
	}
	inputs, err := w.nodeAttributes(t, n)
	if err != nil {
		return nil, err
	}
	for i, in := range inputs {
		if arg := w.plainOperand(n, i); arg != nil {
			t.args = append(t.args, arg)
			continue
		}
		arg, err := w.read(in)
		if err != nil {
			return nil, err
		}
		t.args = append(t.args, arg)
	}
	return w.add(t), nil
}

// shapes maps ops to their operand that is a shape.
var shapes = map[string]int{"Reshape": 1, "Expand": 1}

// plainOperand returns the term of an operand that is never a number of the op: an exponent, which is fixed, or a
// shape, which is open if it has sizes. It returns nil for others.
func (w *writer) plainOperand(n *onnx.Node, i int) *term {
	v := n.Inputs[i]
	at, shape := shapes[n.OpType]
	switch shape = shape && at == i && onnx.IsStandardDomain(n.Domain); {
	case n.Is("Pow") && i == 1:
		if x, _, ok := w.Scalar(v); ok {
			return leaf(&notation.Number{Value: short(x)})
		}
	case shape:
		list, ok := w.Ints(v)
		if ok && !slices.ContainsFunc(list, func(i int64) bool { return i < -1 || i > 1 }) {
			return leaf(&notation.Ints{Values: list})
		}
		return leaf(notation.Wildcard{})
	}
	return nil
}

// add sets a term's key, and sorts its arguments.
func (w *writer) add(t *term) *term {
	t.op = t.call.Op
	if t.call.Domain == "" {
		w.generalize(t)
	}
	if notation.Commutative[t.call.Op] && t.call.Domain == "" && len(t.args) == 2 {
		w.flatten(t)
		slices.SortStableFunc(t.args, compare)
	}
	h := sha256.New()
	fmt.Fprint(h, t.call.Domain, t.call.Op, t.call.Optional)
	for _, a := range t.call.Attrs {
		fmt.Fprint(h, a.Name, a.Number == nil, a.String())
	}
	for _, a := range t.args {
		fmt.Fprint(h, "(", a.key, ")")
	}
	t.key = fmt.Sprintf("%x", h.Sum(nil)[:12])
	return t
}

// maxOperands bounds the operands of a flattened product or sum: all ways to nest them are tried.
const maxOperands = 5

// flatten merges nested products or sums into one, which then matches any nesting.
func (w *writer) flatten(t *term) {
	if !notation.Associative[t.call.Op] {
		return
	}
	for i := len(t.args) - 1; i >= 0; i-- {
		a := t.args[i]
		if a.leaf == nil && a.call.Op == t.call.Op && a.call.Domain == "" &&
			len(a.args)+len(t.args) <= maxOperands+1 && w.readOnce(a) {
			t.args = slices.Replace(t.args, i, i+1, a.args...)
		}
	}
}

// readOnce reports whether at most one node reads the value of a term.
func (w *writer) readOnce(t *term) bool {
	for v, u := range w.terms {
		if u == t {
			return len(w.Readers(v)) <= 1
		}
	}
	return false
}

// compare sorts operands first, then computed values, then weights and numbers.
func compare(a, b *term) int { return cmp.Or(a.rank()-b.rank(), strings.Compare(a.key, b.key)) }

func (t *term) rank() int {
	_, operand := t.leaf.(*notation.Name)
	switch {
	case operand:
		return 0
	case t.leaf != nil:
		return 3
	case t.call.Op == "Row" || t.call.Op == "Cast" && t.args[0].call.Op == "Row":
		return 2
	}
	return 1
}
