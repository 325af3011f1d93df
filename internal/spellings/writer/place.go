package writer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Place is the location of the block.
type Place int

// The places.
const (
	MainGraph  Place = iota
	inBranch         // the then_branch of an If, reading values of the main graph
	inLoop           // the body of a Loop of two rounds, likewise
	inFunction       // a model-local function
	places
)

// String names the place for reports.
func (p Place) String() string {
	return [...]string{"main graph", "If", "Loop", "function"}[p]
}

// nest is the graph of the block if it is not the main graph.
type nest struct {
	graph    *onnx.Graph
	function *onnx.Function
	outer    []*onnx.Value // the block's inputs
}

// Input declares an input of the model.
func (w *Writer) Input(name string, t onnx.DataType, dims []Dim) *onnx.Value {
	typ := onnx.Type{DataType: t, HasShape: true}
	for _, d := range dims {
		if w.Symbol && d.Name != "" {
			typ.Dims = append(typ.Dims, onnx.Dim{Value: -1, Param: d.Name})
		} else {
			typ.Dims = append(typ.Dims, onnx.Dim{Value: int64(d.Size)})
		}
	}
	return w.Model.Graph.AddInput(name, typ)
}

// Dim is a dimension; one with a name may be symbolic.
type Dim struct {
	Name string
	Size int
}

// Enter opens the graph of the block, and returns the values under their names there. List all values that the block
// reads.
func (w *Writer) Enter(values ...*onnx.Value) []*onnx.Value {
	for i, v := range values {
		if t, _ := v.Type(); v.Const == nil && w.Chance(3) && t.DataType.IsFloat() { // computed instead of an input
			values[i] = w.Op("LeakyRelu", v)
		}
	}
	w.nest.outer = values
	switch w.Place {
	case inBranch, inLoop:
		s := onnx.New(10, w.Opset).Graph
		s.Parent, s.Name = w.Graph, "body"
		if w.Place == inLoop {
			for _, v := range []struct {
				name string
				typ  onnx.DataType
			}{{"inner_round", onnx.Int64}, {"inner_going", onnx.Bool}} {
				s.AddInput(v.name, onnx.Type{DataType: v.typ, HasShape: true})
			}
		}
		w.nest.graph, w.Graph = s, s
	case inFunction:
		f := onnx.NewFunction("local", "Block", "", w.Opset)
		inner := make([]*onnx.Value, len(values))
		for i, v := range values {
			inner[i] = f.Body.AddInput("inner_"+v.Name, onnx.Type{})
		}
		w.Model.Functions = append(w.Model.Functions, f)
		w.Model.ImportOpset("local", 1)
		w.nest.function, w.nest.graph, w.Graph = f, f.Body, f.Body
		return inner
	}
	return values
}

// Leave closes the graph of the block and makes its results outputs of the model.
func (w *Writer) Leave(results []*onnx.Value) {
	w.Graph = w.Model.Graph
	switch s := w.nest.graph; w.Place {
	case inBranch:
		e := onnx.New(10, w.Opset).Graph
		e.Parent, e.Name = w.Graph, "other"
		for i, v := range results {
			s.AddOutput(v)
			other := e.NewValue("other_" + v.Name)
			e.AddNode("Identity", w.nest.outer[:1], []*onnx.Value{other})
			e.AddOutput(other)
			results[i] = w.Graph.NewValue("If")
		}
		yes := w.Model.Graph.AddInitializer(Must(reference.NewInts(onnx.Bool, []int{}, []int64{1}).ToONNX("yes")))
		w.Graph.AddNode("If", []*onnx.Value{yes}, results,
			&onnx.Attribute{Name: "then_branch", Type: onnx.AttrGraph, Graph: s},
			&onnx.Attribute{Name: "else_branch", Type: onnx.AttrGraph, Graph: e})
	case inLoop:
		going := s.NewValue("inner_still_going")
		s.AddNode("Identity", []*onnx.Value{s.Inputs[1]}, []*onnx.Value{going})
		s.AddOutput(going)
		for i, v := range results {
			s.AddOutput(v)
			results[i] = w.Graph.NewValue("Loop")
		}
		rounds := w.Graph.AddInitializer(Must(reference.NewInts(onnx.Int64, []int{}, []int64{2}).ToONNX("rounds")))
		w.Graph.AddNode("Loop", []*onnx.Value{rounds, nil}, results,
			&onnx.Attribute{Name: "body", Type: onnx.AttrGraph, Graph: s})
	case inFunction:
		for i, v := range results {
			s.AddOutput(v)
			results[i] = w.Graph.NewValue("Block")
		}
		w.Graph.AddNode("Block", w.nest.outer, results).Domain = "local"
	}
	for _, v := range results {
		v.SetType(onnx.Type{DataType: w.Type})
		w.Graph.AddOutput(v)
	}
}

// Must returns x, and panics with an error.
func Must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// ManyRows names a larger dimension, so that tokens go to most of some experts.
const ManyRows = "tokens"
