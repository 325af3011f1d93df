package pagedtarget

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// farthest is the greatest position whose row is compared with the row of the same position alone.
const farthest = 1 << 17

// A rotation reads a row of each table for each token, and the op a row for each position. table adds the rows of all
// positions that the blocks of a sequence have room for, or that constant tables of the model have. It repeats the
// nodes between the positions of the tokens and the tables for the numbers 0, 1, 2, … Their number is a constant if a
// constant table bounds it.
func (f *folder) table(c *edit.Change, n *onnx.Node, cos, sin *onnx.Value, a fused.RotaryEmbedding) (*[2]*onnx.Value,
	error) {
	at, nodes, err := f.positions(cos, sin)
	if err != nil {
		return nil, err
	}
	rows, err := f.checkRows(at, nodes, cos, sin)
	if err != nil {
		return nil, err
	}
	g, stands := f.Model.Graph, map[*onnx.Value]*onnx.Value{at: f.numbers(c, n, at, rows)}
	for _, x := range nodes {
		inputs, outputs := slices.Clone(x.Inputs), make([]*onnx.Value, len(x.Outputs))
		for i, v := range inputs {
			if stands[v] != nil {
				inputs[i] = stands[v]
			}
		}
		for i, v := range x.Outputs {
			if v != nil {
				outputs[i] = g.NewValue(v.Name + "_table")
				stands[v] = outputs[i]
			}
		}
		made := c.AddNode(g, x.OpType, inputs, outputs, slices.Clone(x.Attributes)...)
		made.Domain, made.Overload, made.Name = x.Domain, x.Overload, x.Label()+"_table"
		made.Metadata = f.Origin(ruleFolded, x)
	}
	var tables [2]*onnx.Value
	for i, v := range []*onnx.Value{cos, sin} {
		width, half := f.widthOf(v), a.RotaryDim/2
		if width != half && width != a.RotaryDim {
			return nil, fmt.Errorf("table %q is %v, and %d channels are rotated", v.Name, pass.Dims(f.facts, v),
				a.RotaryDim)
		}
		t := f.rowsOf(c, stands[v], width)
		if width != half { // each number twice, or the claim fails
			of := []int64{0, half, 1}
			if a.Interleaved {
				of = []int64{0, math.MaxInt64, 2}
			}
			cut := []*onnx.Value{t}
			for k, name := range []string{"first", "end", "axis", "step"} {
				cut = append(cut, f.integers(c, name, [4]int64{of[0], of[1], 1, of[2]}[k]))
			}
			t = g.NewValue(v.Name + "_half")
			f.AddNode(c, g, ruleFolded, "Slice", t, cut...)
		}
		count := onnx.Dim{Value: -1, Param: "positions"}
		if rows > 0 {
			count = onnx.Dim{Value: rows}
		}
		c.SetType(t, onnx.Type{DataType: f.facts.DataType(v), HasShape: true, Dims: []onnx.Dim{count, {Value: half}}})
		tables[i] = t
	}
	return &tables, nil
}

func (f *folder) integers(c *edit.Change, name string, list ...int64) *onnx.Value {
	return c.AddInitializer(f.Model.Graph, onnx.NewInt64s(name, list))
}

// positions finds the positions that both tables are computed from, the only integers that become floats or choose rows
// of a table, and the nodes between.
func (f *folder) positions(tables ...*onnx.Value) (at *onnx.Value, nodes []*onnx.Node, err error) {
	above, found := map[*onnx.Node]bool{}, map[*onnx.Value]bool{}
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		if v == nil || v.Producer == nil || above[v.Producer] || found[v] {
			return
		}
		x := v.Producer
		above[x] = true
		for i, in := range x.Reads() {
			if (x.Is("Cast") || x.Is("Gather") && i == 1) && in.Constant() == nil && f.facts.DataType(in).IsInteger() &&
				!f.facts.DataType(v).IsInteger() {
				at, found[in] = in, true
			} else {
				visit(in)
			}
		}
	}
	for _, v := range tables {
		visit(v)
	}
	if len(found) != 1 {
		return nil, nil, fmt.Errorf("the tables are computed from %d values that could be positions", len(found))
	}
	depends := map[*onnx.Value]bool{at: true}
	for _, x := range f.Model.Graph.Nodes {
		if above[x] && slices.ContainsFunc(x.Reads(), func(v *onnx.Value) bool { return depends[v] }) {
			nodes = append(nodes, x)
			for _, v := range x.Outputs {
				depends[v] = true
			}
		}
	}
	return at, nodes, nil
}

// numbers returns 0, 1, 2, … in the type and with the axes of positions: rows of them or, if it is 0, as many as a
// sequence has room for in its blocks.
func (f *folder) numbers(c *edit.Change, n *onnx.Node, at *onnx.Value, rows int64) *onnx.Value {
	g := f.Model.Graph
	scalar := func(name string, x int64) *onnx.Value {
		t := onnx.NewInt64s(name, []int64{x})
		t.Dims = []int64{}
		return c.AddInitializer(g, t)
	}
	compute := func(op, name string, in ...*onnx.Value) *onnx.Value {
		v := g.NewValue(name)
		f.AddNode(c, g, ruleFolded, op, v, in...)
		return v
	}
	end := scalar("positions", rows)
	if rows == 0 {
		shape := compute("Shape", "block_table_shape", n.Input(fused.PagedAttentionBlockTable))
		columns := compute("Gather", "block_columns", shape, scalar("columns", 1))
		end = compute("Mul", "most_positions", columns,
			scalar("block", pass.Dims(f.facts, n.Input(fused.PagedAttentionKeyCache))[1]))
	}
	v := compute("Range", "every_position", scalar("zero", 0), end, scalar("one", 1))
	if t := f.facts.DataType(at); t != onnx.Int64 {
		v = compute("Cast", "every_position_cast", v)
		c.SetAttr(v.Producer, onnx.IntAttr("to", int64(t)))
	}
	if dims := pass.Dims(f.facts, at); len(dims) != 1 {
		v = compute("Reshape", "every_position_row", v, f.integers(c, "positions_shape", dims...))
	}
	return v
}

// checkRows proves that a row of the tables depends only on its position, also beside far positions: a model may
// choose its tables by the greatest one. It returns the number of rows of the shortest constant table, or 0.
func (f *folder) checkRows(at *onnx.Value, nodes []*onnx.Node, tables ...*onnx.Value) (rows int64, err error) {
	dims := pass.Dims(f.facts, at)
	axis := slices.Index(dims, -1)
	more := func(d int64) bool { return d != 1 }
	if axis < 0 || slices.ContainsFunc(slices.Concat(dims[:axis], dims[axis+1:]), more) {
		return 0, fmt.Errorf("positions %q are %v, not one for each token", at.Name, dims)
	}
	for _, x := range nodes {
		if t := x.Input(0).Constant(); x.Is("Gather") && t != nil && x.Input(0) != at {
			along := x.AttrInt("axis", 0)
			if along < 0 {
				along += int64(len(t.Dims))
			}
			if along < 0 || along >= int64(len(t.Dims)) {
				return 0, fmt.Errorf("node %q gathers along axis %d of a table of rank %d", x.Label(), along,
					len(t.Dims))
			}
			if n := t.Dims[along]; rows == 0 || n < rows {
				rows = n
			}
		}
	}
	tried := []int64{0, 1, 2, 7}
	for p := int64(8); p <= farthest; p *= 2 {
		tried = append(tried, p+1, p)
	}
	if rows > 0 {
		tried = append(slices.DeleteFunc(tried, func(p int64) bool { return p >= rows }), rows-1)
	}
	slices.Reverse(tried)
	compute := prove.Region(f.Model, []*onnx.Value{at}, tables)
	of := func(list ...int64) ([]*reference.Tensor, error) {
		shape := make([]int, len(dims))
		for i := range shape {
			shape[i] = 1
		}
		shape[axis] = len(list)
		return compute(reference.Options{}, []*reference.Tensor{reference.NewInts(f.facts.DataType(at), shape, list)})
	}
	return rows, f.prover.Once("rows "+fmt.Sprintf("%p %p", tables[0], tables[1]), func() error {
		all, err := of(tried...)
		if err != nil {
			return fmt.Errorf("the tables need more than positions: %w", err)
		}
		for i, p := range tried {
			one, err := of(p)
			if err != nil {
				return err
			}
			for k, x := range all {
				width := len(one[k].F)
				if len(x.F) != width*len(tried) || x.Shape[x.Rank()-1] != width {
					return fmt.Errorf("table %q of %d positions is %v, not one row for each", tables[k].Name,
						len(tried), x.Shape)
				}
				if !slices.Equal(x.F[i*width:(i+1)*width], one[k].F) {
					return errors.New("the rows of the tables depend on other positions, or on the greatest one")
				}
			}
		}
		return nil
	})
}
