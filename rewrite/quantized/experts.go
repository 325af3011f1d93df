package quantized

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// expertsSite is a mixture whose experts another tool quantized. It becomes a mojo.MoE of floats, and then a mojo.QMoE
// before anything is written.
type expertsSite struct {
	call       *sites.Call
	from       string // the op of its products
	gateUp     Constant
	down       Constant
	gateUpRows *Weight
	downRows   *Weight
}

// A Constant is a constant of a replacement.
type Constant interface {
	Tensor() *onnx.Tensor
	// Initializer returns its initializer once sites are replaced.
	Initializer() *onnx.Value
}

// viewed lists the nodes whose floats a match reads.
func (v *View) viewed(c *sites.Site) (list []*floatNode) {
	for _, in := range c.Match.Inputs {
		if f := v.of[in.Constant()]; f != nil {
			list = append(list, f)
		}
	}
	return list
}

// Keep returns an error for a site whose weights another tool quantized, unless they are experts that may become a
// mojo.QMoE.
func (v *View) Keep(c *sites.Site) error {
	nodes := v.viewed(c)
	if len(nodes) == 0 {
		return nil
	}
	from := onnx.OpName(nodes[0].was.Domain, nodes[0].was.OpType)
	if v.activations == "" || expertsOf(c) == nil || c.Scope.Function != nil {
		return reason.New(reason.ExpertsQuantized, nodes[0].node, "its experts are quantized (%s) and stay "+
			"quantized", from)
	}
	return nil
}

// expertsOf returns the call of mojo.MoE, or nil if there is none.
func expertsOf(c *sites.Site) *sites.Call {
	i := slices.IndexFunc(c.Calls, func(call *sites.Call) bool { return call.Op.Name == fused.MoEName })
	if i < 0 {
		return nil
	}
	return c.Calls[i]
}

// Take returns an error if a site has experts that another tool quantized and that mojo.QMoE cannot keep quantized. It
// ignores other sites. Call it for a site that passed all other checks.
func (v *View) Take(c *sites.Site, constantOf func(*onnx.Value) Constant) error {
	nodes, call := v.viewed(c), expertsOf(c)
	if len(nodes) == 0 {
		return nil
	}
	from := onnx.OpName(nodes[0].was.Domain, nodes[0].was.OpType)
	refuse := func(format string, args ...any) error {
		return reason.New(reason.ExpertsQuantized, nodes[0].node, "its experts are quantized (%s), "+format,
			append([]any{from}, args...)...)
	}
	s := &expertsSite{call: call, from: from}
	for _, m := range []struct {
		input    int
		constant *Constant
		rows     **Weight
	}{{fused.MoEGateUp, &s.gateUp, &s.gateUpRows}, {fused.MoEDown, &s.down, &s.downRows}} {
		k := constantOf(call.Node.Input(m.input))
		layout := fused.ExpertLayout(m.input)
		name := []string{"gate_up", "down"}[m.input-fused.MoEGateUp]
		if k == nil {
			return refuse("but %s is not a constant of the main graph", name)
		}
		inOut := call.Site.Attr(layout).String == "in_out"
		w, err := v.rows(c.Match.Outputs[0].Name+"_"+name, k.Tensor(), inOut)
		if err != nil {
			return refuse("but mojo.QMoE cannot read %s: %w", name, err)
		}
		*m.constant, *m.rows = k, w
	}
	for _, f := range nodes {
		if err := v.decodes(f); err != nil {
			return err
		}
	}
	q := newQuantizer(v.Run, v.Facts, v.activations)
	site := reader{node: call.Node, typ: call.Site.Types[fused.MoEX]}
	for _, w := range []*Weight{s.gateUpRows, s.downRows} {
		if w.Matrix.K%32 != 0 || w.Matrix.K == 0 {
			return refuse("but their row length %d is not a multiple of 32", w.Matrix.K)
		}
	}
	if err := q.tryMixture(s.gateUpRows, s.downRows, site); err != nil {
		return refuse("but mojo.QMoE is not proven for them: %w", err)
	}
	v.experts = append(v.experts, s)
	return nil
}

// rows returns the quantized form of the matrices of all experts, [E, out, in], or [E, in, out] with inOut, whose
// elements come from the view's constants.
func (v *View) rows(name string, t *onnx.Tensor, inOut bool) (*Weight, error) {
	if len(t.Dims) != 3 || t.Len() == 0 {
		return nil, fmt.Errorf("its shape is %v", t.Dims)
	}
	count, n, k := t.Dims[0], t.Dims[1], t.Dims[2]
	byRow, byColumn := k, int64(1)
	if inOut {
		n, k, byRow, byColumn = k, n, 1, k
	}
	type place struct {
		matrix int
		row    int64
	}
	type key struct {
		node   *floatNode
		expert int64
		inOut  bool
	}
	var list []*others
	known := map[key]int{}
	rows := make([]place, count*n)
	for i := range rows {
		row := int64(i)
		first := row/n*n*k + row%n*byRow
		from, at := t.Place(first)
		f := v.of[from]
		if f == nil {
			return nil, fmt.Errorf("row %d is stored as floats", row)
		}
		second, next := t.Place(first + min(1, k-1)*byColumn)
		end, last := t.Place(first + (k-1)*byColumn)
		inner := from.Dims[len(from.Dims)-1]
		outer := from.Dims[len(from.Dims)-2]
		turned := next-at != 1
		step, width, start := int64(1), inner, at%inner
		if turned {
			step, width, start = inner, outer, at%(inner*outer)/inner
		}
		if second != from || end != from || next-at != step || last-at != (k-1)*step || start != 0 || width != k {
			return nil, fmt.Errorf("row %d is not a row of a quantized matrix", row)
		}
		x := key{f, at / (inner * outer), turned}
		if f.was.OpType == "MatMulNBits" && !turned {
			return nil, fmt.Errorf("row %d is not a row of a quantized matrix", row)
		}
		m, have := known[x]
		if !have {
			one, err := f.matrix(x.expert, turned)
			if err == nil {
				err = one.fits()
			}
			if err != nil {
				return nil, err
			}
			if len(list) > 0 && !one.alike(list[0]) {
				return nil, fmt.Errorf("%q and %q are quantized in different ways", list[0].name, one.name)
			}
			m = len(list)
			list, known[x] = append(list, one), m
		}
		rows[i] = place{m, at % (inner * outer) / inner}
		if turned {
			rows[i].row = at % inner
		}
	}
	if n%blocks.PanelRows != 0 {
		return nil, fmt.Errorf("its experts have %d rows, and panels have %d", n, blocks.PanelRows)
	}
	all := &otherRows{name: name, experts: count, n: count * n, list: list, at: func(i int64) (int, int64) {
		return rows[i].matrix, rows[i].row
	}}
	w := &Weight{InOut: inOut, Sample: func(count int64) (*fused.Quantized, []float32, error) {
		q, floats, err := all.sample(count)
		for row := int64(0); err == nil && row < int64(len(floats))/k; row++ {
			want := make([]float64, k)
			for i, x := range floats[row*k : (row+1)*k] {
				want[i] = float64(x)
			}
			err = sameFloats(want, t, row/n*n*k+row%n*byRow, byColumn)
		}
		return q, floats, err
	}}
	var err error
	w.Matrix, err = all.quantized(all.n, count, nil)
	return w, err
}

// alike reports whether two matrices have the same kinds of elements, blocks, scales and zero points.
func (x *others) alike(o *others) bool {
	floats := func(t *onnx.Tensor) bool { return t != nil && t.DataType.IsFloat() }
	return x.bits == o.bits && x.block == o.block && x.k == o.k && x.scales.DataType == o.scales.DataType &&
		floats(x.zeros) == floats(o.zeros)
}

// weights sets the matrices' values to the initializers that mojo.MoE reads, and returns the matrices.
func (s *expertsSite) weights() []*Weight {
	s.gateUpRows.Value, s.downRows.Value = s.gateUp.Initializer(), s.down.Initializer()
	return []*Weight{s.gateUpRows, s.downRows}
}
