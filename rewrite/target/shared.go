package target

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Products holds the state shared by a model's products with quantized weights.
type Products struct {
	// AccuracyLevel is written on onnxruntime's ops: 0 does not round activations, 4 rounds them to 8 bits.
	AccuracyLevel int64
	// Distinct promises that the experts of a token are distinct and have nonnegative weights, even if the graph does
	// not show it.
	Distinct bool

	made map[madeKey]*onnx.Value
	most map[coded]int64          // the largest number of rows in any call, by the weights without n
	rows map[madeKey]*onnx.Tensor // that others are tied to
}

// madeKey identifies a value shared by several calls: its graph, the value or weights that it is derived from, and how.
type madeKey struct {
	graph *onnx.Graph
	of    any // *onnx.Value or coded
	what  string
}

// Expect announces a call that will be written. Calls that share weights may use different numbers of rows.
func (p *Products) Expect(c *Call) {
	if m, err := c.codedFrom(fused.LinearCodes); err == nil { // an Embedding has the same numbers
		if p.most == nil {
			p.most = map[coded]int64{}
		}
		p.most[m.anyRows()] = max(p.most[m.anyRows()], m.n)
	}
}

// keep makes later tensors with the same key tied to t.
func (p *Products) keep(key madeKey, t *onnx.Tensor) {
	if p.rows == nil {
		p.rows = map[madeKey]*onnx.Tensor{}
	}
	p.rows[key] = t
}

// withMostRows returns the weights with the largest number of rows in any call.
func (p *Products) withMostRows(m *coded) coded {
	all := *m
	all.n = max(m.n, p.most[m.anyRows()])
	return all
}

// shared returns the value made earlier for the same key, or makes it.
func (c *Call) shared(of any, what string, make func() *onnx.Value) *onnx.Value {
	return c.sharedIn(c.Node.Graph, of, what, make)
}

// sharedIn is shared for values readable by any call in g or its subgraphs.
func (c *Call) sharedIn(g *onnx.Graph, of any, what string, make func() *onnx.Value) *onnx.Value {
	if c.Products == nil {
		c.Products = &Products{}
	}
	if c.Products.made == nil {
		c.Products.made = map[madeKey]*onnx.Value{}
	}
	key := madeKey{g, of, what}
	if c.Products.made[key] == nil {
		c.Products.made[key] = make()
	}
	return c.Products.made[key]
}

func (c *Call) accuracyLevel() int64 {
	if c.Products == nil {
		return 0
	}
	return c.Products.AccuracyLevel
}

// weight adds a tensor derived from the weights whose codes are the given input, once for all calls that share the
// weights.
func (c *Call) weight(m *coded, codes int, what string, make func() (*onnx.Tensor, error)) *onnx.Value {
	at := c.Input(codes).Graph
	if c.Input(codes).Producer != nil { // in a function's body
		at = c.Node.Graph
	}
	return c.weightIn(at, m, codes, what, make)
}

// ownWeight is weight in the graph of the call. Each graph gets its own initializers, whose elements are stored once in
// a data file.
func (c *Call) ownWeight(m *coded, codes int, what string, make func() (*onnx.Tensor, error)) *onnx.Value {
	return c.weightIn(c.Node.Graph, m, codes, what, func() (*onnx.Tensor, error) {
		key := madeKey{nil, *m, what}
		all := c.Products.rows[key]
		if all == nil {
			var err error
			if all, err = make(); err != nil {
				return nil, err
			}
			c.Products.keep(key, all)
		}
		return all.Tied(all.Name), nil
	})
}

func (c *Call) weightIn(at *onnx.Graph, m *coded, codes int, what string,
	make func() (*onnx.Tensor, error)) *onnx.Value {
	var err error
	v := c.sharedIn(at, *m, what, func() *onnx.Value {
		var t *onnx.Tensor
		if t, err = make(); err != nil {
			return nil
		}
		if len(c.Node.Graph.Initializers()) == 0 && c.Input(codes).Producer != nil { // in a function's body
			return c.Constant(t)
		}
		return new(edit.Change).AddInitializer(at, t)
	})
	if err != nil { // dims without a size, which the check of the op refuses
		panic(err)
	}
	return v
}

// byRow is weight for a tensor with a row for each row of the weights, reshaped to dims if there are any. Calls that
// share the weights use the first rows of one tensor, which is stored once in a data file.
func (c *Call) byRow(m *coded, what string, make func(*coded) (*onnx.Tensor, error), dims ...int64) *onnx.Value {
	return c.weight(m, fused.LinearCodes, fmt.Sprint(what, dims), func() (*onnx.Tensor, error) {
		p, most := c.Products, c.Products.withMostRows(m)
		key := madeKey{nil, most, what}
		all := p.rows[key]
		if all == nil {
			var err error
			if all, err = make(&most); err != nil {
				return nil, err
			}
			p.keep(key, all)
		}
		if dims == nil {
			dims = append([]int64{m.n}, all.Dims[1:]...)
		}
		if m.n < most.n {
			return all.View(all.Name, dims, 0, nil)
		}
		t := all.Tied(all.Name)
		t.Dims = dims
		return t, nil
	})
}

// shaped returns a tensor with the same elements and other dims, stored once.
func shaped(make func() (*onnx.Tensor, error), dims ...int64) func() (*onnx.Tensor, error) {
	return func() (*onnx.Tensor, error) {
		t, err := make()
		if err == nil {
			t.Dims = dims
		}
		return t, err
	}
}
