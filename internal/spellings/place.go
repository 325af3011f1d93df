package spellings

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// place is the location of the block.
type place int

const (
	mainGraph  place = iota
	inBranch         // the then_branch of an If, reading values of the main graph
	inLoop           // the body of a Loop of two rounds, likewise
	inFunction       // a model-local function
	places
)

// String names the place for reports.
func (p place) String() string {
	return [...]string{"main graph", "If", "Loop", "function"}[p]
}

// nest is the graph of the block if it is not the main graph.
type nest struct {
	graph    *onnx.Graph
	function *onnx.Function
	outer    []*onnx.Value // the block's inputs
}

// input declares an input of the model.
func (w *writer) input(name string, t onnx.DataType, dims []dim) *onnx.Value {
	typ := onnx.Type{DataType: t, HasShape: true}
	for _, d := range dims {
		if w.symbol && d.name != "" {
			typ.Dims = append(typ.Dims, onnx.Dim{Value: -1, Param: d.name})
		} else {
			typ.Dims = append(typ.Dims, onnx.Dim{Value: int64(d.size)})
		}
	}
	return w.m.Graph.AddInput(name, typ)
}

// dim is a dimension; one with a name may be symbolic.
type dim struct {
	name string
	size int
}

// enter opens the graph of the block, and returns the values under their names there. List all values that the block
// reads.
func (w *writer) enter(values ...*onnx.Value) []*onnx.Value {
	for i, v := range values {
		if t, _ := v.Type(); v.Const == nil && w.chance(3) && t.DataType.IsFloat() { // computed instead of an input
			values[i] = w.op("LeakyRelu", v)
		}
	}
	w.nest.outer = values
	switch w.place {
	case inBranch, inLoop:
		s := onnx.New(10, w.opset).Graph
		s.Parent, s.Name = w.g, "body"
		if w.place == inLoop {
			for _, v := range []struct {
				name string
				typ  onnx.DataType
			}{{"inner_round", onnx.Int64}, {"inner_going", onnx.Bool}} {
				s.AddInput(v.name, onnx.Type{DataType: v.typ, HasShape: true})
			}
		}
		w.nest.graph, w.g = s, s
	case inFunction:
		f := onnx.NewFunction("local", "Block", "", w.opset)
		inner := make([]*onnx.Value, len(values))
		for i, v := range values {
			inner[i] = f.Body.AddInput("inner_"+v.Name, onnx.Type{})
		}
		w.m.Functions = append(w.m.Functions, f)
		w.m.ImportOpset("local", 1)
		w.nest.function, w.nest.graph, w.g = f, f.Body, f.Body
		return inner
	}
	return values
}

// leave closes the graph of the block and makes its results outputs of the model.
func (w *writer) leave(results []*onnx.Value) {
	w.g = w.m.Graph
	switch s := w.nest.graph; w.place {
	case inBranch:
		e := onnx.New(10, w.opset).Graph
		e.Parent, e.Name = w.g, "other"
		for i, v := range results {
			s.AddOutput(v)
			other := e.NewValue("other_" + v.Name)
			e.AddNode("Identity", w.nest.outer[:1], []*onnx.Value{other})
			e.AddOutput(other)
			results[i] = w.g.NewValue("If")
		}
		yes := w.m.Graph.AddInitializer(must(reference.NewInts(onnx.Bool, []int{}, []int64{1}).ToONNX("yes")))
		w.g.AddNode("If", []*onnx.Value{yes}, results,
			&onnx.Attribute{Name: "then_branch", Type: onnx.AttrGraph, Graph: s},
			&onnx.Attribute{Name: "else_branch", Type: onnx.AttrGraph, Graph: e})
	case inLoop:
		going := s.NewValue("inner_still_going")
		s.AddNode("Identity", []*onnx.Value{s.Inputs[1]}, []*onnx.Value{going})
		s.AddOutput(going)
		for i, v := range results {
			s.AddOutput(v)
			results[i] = w.g.NewValue("Loop")
		}
		rounds := w.g.AddInitializer(must(reference.NewInts(onnx.Int64, []int{}, []int64{2}).ToONNX("rounds")))
		w.g.AddNode("Loop", []*onnx.Value{rounds, nil}, results,
			&onnx.Attribute{Name: "body", Type: onnx.AttrGraph, Graph: s})
	case inFunction:
		for i, v := range results {
			s.AddOutput(v)
			results[i] = w.g.NewValue("Block")
		}
		w.g.AddNode("Block", w.nest.outer, results).Domain = "local"
	}
	for _, v := range results {
		v.SetType(onnx.Type{DataType: w.typ})
		w.g.AddOutput(v)
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
