package target

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Products is what the products of a model with quantised weights have in common.
type Products struct {
	// AccuracyLevel is written on onnxruntime's ops: 0 rounds no activations, 4 rounds them to 8 bits.
	AccuracyLevel int64
	// Distinct says that the experts of a token are distinct and count with numbers from 0 on, where that does not
	// follow from the graph.
	Distinct bool

	made map[madeKey]*onnx.Value
	most map[coded]int64          // rows of the call that has most of them, by the weights without their n
	rows map[madeKey]*onnx.Tensor // that others are tied to
}

// madeKey names what several calls share: what is made of a value, or of weights, in a graph.
type madeKey struct {
	graph *onnx.Graph
	of    any // *onnx.Value or coded
	what  string
}

// Expect tells of a call that will be written: of weights that several calls share, each may have another number of
// rows.
func (p *Products) Expect(c *Call) {
	if m, err := c.codedFrom(fused.LinearCodes); err == nil { // those of an Embedding have the same numbers
		if p.most == nil {
			p.most = map[coded]int64{}
		}
		p.most[m.anyRows()] = max(p.most[m.anyRows()], m.n)
	}
}

// keep has tensors that are made of the same tied to the first.
func (p *Products) keep(key madeKey, t *onnx.Tensor) {
	if p.rows == nil {
		p.rows = map[madeKey]*onnx.Tensor{}
	}
	p.rows[key] = t
}

// withMostRows is weights with as many rows as a call has of them.
func (p *Products) withMostRows(m *coded) coded {
	all := *m
	all.n = max(m.n, p.most[m.anyRows()])
	return all
}

// shared returns what was made of a value before, or makes it.
func (c *Call) shared(of any, what string, make func() *onnx.Value) *onnx.Value {
	return c.sharedIn(c.Node.Graph, of, what, make)
}

// sharedIn is shared of values that any call in the graph, or below it, may read.
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

// weight adds a tensor that is made of the weights whose codes are an input, once for all calls that share the weights.
func (c *Call) weight(m *coded, codes int, what string, make func() (*onnx.Tensor, error)) *onnx.Value {
	at := c.Input(codes).Graph
	if c.Input(codes).Producer != nil { // in a function's body
		at = c.Node.Graph
	}
	return c.weightIn(at, m, codes, what, make)
}

// ownWeight is weight in the graph of the call. Calls in other graphs have initializers of their own, whose elements a
// data file has once.
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
	if err != nil { // of dims without a size, which the check of the op refuses
		panic(err)
	}
	return v
}

// byRow is weight for a tensor with a row for each of the weights', in these dims or, where there are none, its own.
// Calls that share the weights have the first rows of one tensor, which a data file has once.
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

// shaped is a tensor with other dims and the same elements, stored once.
func shaped(make func() (*onnx.Tensor, error), dims ...int64) func() (*onnx.Tensor, error) {
	return func() (*onnx.Tensor, error) {
		t, err := make()
		if err == nil {
			t.Dims = dims
		}
		return t, err
	}
}
