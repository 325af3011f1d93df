package formula

import (
	"fmt"
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// graph is a model with inputs x [batch, queries, 8], past [batch, 2, past, 4] and mask [batch, past + queries], and a
// reader's facts about it.
type graph struct {
	*onnxtest.Builder
	x, past, mask *onnx.Value
	i, j          *onnx.Value // positions of queries and keys, as a column and a row
	all           *onnx.Value // the number of keys
}

func newGraph() *graph {
	g := &graph{Builder: onnxtest.New(18)}
	g.x = g.Input("x", onnx.Float, "batch", "queries", 8)
	g.past = g.Input("past", onnx.Float, "batch", 2, "past", 4)
	g.mask = g.Input("mask", onnx.Int64, "batch", "past + queries")
	before := g.Op("Gather", g.Op("Shape", g.past), 2)
	g.all = g.Op("Add", before, g.Op("Gather", g.Op("Shape", g.x), 1))
	g.i = g.Op("Unsqueeze", g.Op("Range", before, g.all, 1), []int64{1})
	g.j = g.Op("Unsqueeze", g.Op("Range", 0, g.all, 1), []int64{0})
	return g
}

// sizes are variables of a reader for the sizes of the graph.
type sizes struct {
	*Reader
	batch, queries, past *Sum
	valid                func(key string, v *Var) // called for each new element of the mask
}

func (g *graph) reader() *sizes {
	facts := infer.Analyze(g.Model)
	s := &sizes{Reader: NewReader(match.New(g.Graph, facts, nil))}
	s.batch, s.queries, s.past = Of(s.Natural("batch")), Of(s.Natural("queries")), Of(s.Natural("past"))
	s.valid = func(string, *Var) {}
	s.AtLeast(s.batch, Number(2))
	s.AtLeast(s.queries, Number(1))
	s.Size = func(v *onnx.Value, axis int) *Sum {
		n := facts.Size(v, 0, axis)
		if n >= 0 && n == facts.Size(v, 1, axis) && n == facts.Size(v, 2, axis) {
			return Number(n)
		}
		for _, known := range []struct {
			sum  *Sum
			of   *onnx.Value
			axis int
		}{{s.batch, g.x, 0}, {s.queries, g.x, 1}, {s.past, g.past, 2}, {s.past.Plus(s.queries), g.mask, 1}} {
			more := facts.Size(v, 0, axis) - facts.Size(known.of, 0, known.axis)
			same := true
			for w := range infer.Worlds {
				same = same && facts.Size(known.of, w, known.axis)+more == facts.Size(v, w, axis)
			}
			if same {
				return known.sum.Plus(Number(more))
			}
		}
		return nil
	}
	valid := map[string]*Var{}
	s.Leaf = func(v *onnx.Value) LeafReader {
		if v != g.mask {
			return nil
		}
		return func(at []*Sum) *Var {
			key := at[0].String() + "," + at[1].String()
			if valid[key] == nil {
				valid[key] = s.Truth("mask[" + key + "]")
				s.valid(key, valid[key])
			}
			return valid[key]
		}
	}
	return s
}

// TestFormulas compares elements that are read as formulas with computed ones, at some sizes.
func TestFormulas(t *testing.T) {
	ints := func(name string, dims []int, list ...int64) func(g *graph) *onnx.Value {
		return func(g *graph) *onnx.Value {
			c, _ := reference.NewInts(onnx.Int64, dims, list).ToONNX(name)
			return g.Constant(c)
		}
	}
	floats := func(g *graph, v *onnx.Value) *onnx.Value {
		return g.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float)))
	}
	for name, build := range map[string]func(g *graph) *onnx.Value{
		"causal":   func(g *graph) *onnx.Value { return g.Op("LessOrEqual", g.j, g.i) },
		"distance": func(g *graph) *onnx.Value { return g.Op("Sub", g.i, g.j) },
		"window": func(g *graph) *onnx.Value {
			return g.Op("And", g.Op("LessOrEqual", g.j, g.i), g.Op("Greater", g.j, g.Op("Sub", g.i, 3)))
		},
		"of halves": func(g *graph) *onnx.Value { return g.Op("Less", floats(g, g.Op("Sub", g.i, g.j)), 2.5) },
		"chunks": func(g *graph) *onnx.Value {
			return g.Op("Equal", g.Op("Div", g.i, 4), g.Op("Div", g.j, 4))
		},
		"chunks by floats": func(g *graph) *onnx.Value {
			return g.Op("Equal", g.Op("Floor", g.Op("Div", floats(g, g.i), 4.0)),
				g.Op("Floor", g.Op("Mul", floats(g, g.j), 0.25)))
		},
		"remainders": func(g *graph) *onnx.Value { return g.Op("Equal", g.Op("Mod", g.i, 3), g.Op("Mod", g.j, 3)) },
		"of negative numbers": func(g *graph) *onnx.Value {
			d := g.Op("Sub", g.i, g.j)
			return g.Op("Add", g.Op("Mod", d, 3), g.Op("Mul", g.Op("Div", d, 4), 100))
		},
		"added": func(g *graph) *onnx.Value {
			return g.Op("Where", g.Op("LessOrEqual", g.j, g.i), 0.0, -math.MaxFloat32)
		},
		"trilu": func(g *graph) *onnx.Value {
			ones := g.Op("ConstantOfShape", g.Op("Concat", g.Op("Reshape", g.all, []int64{1}),
				g.Op("Reshape", g.all, []int64{1}), onnx.IntAttr("axis", 0)))
			u := g.Op("Trilu", g.Op("Add", ones, 1.0), 1, onnx.IntAttr("upper", 1))
			return g.Op("Slice", u, g.Op("Shape", g.past, onnx.IntAttr("start", 2), onnx.IntAttr("end", 3)),
				[]int64{math.MaxInt64}, []int64{0})
		},
		"lower": func(g *graph) *onnx.Value {
			shape := g.Op("Shape", g.Op("Add", g.i, g.j))
			return g.Op("Trilu", g.Op("Expand", 1.0, shape), g.Op("Gather", g.Op("Shape", g.past), 2),
				onnx.IntAttr("upper", 0))
		},
		"counted": func(g *graph) *onnx.Value {
			ones := g.Op("Expand", 1, g.Op("Shape", g.j))
			c := g.Op("Sub", g.Op("CumSum", ones, 1), 1)
			return g.Op("LessOrEqual", c, g.i)
		},
		"joined": func(g *graph) *onnx.Value {
			parts := []*onnx.Value{g.Op("Slice", g.j, []int64{0}, []int64{1}, []int64{1}),
				g.Op("Mul", g.Op("Slice", g.j, []int64{1}, []int64{math.MaxInt64}, []int64{1}), 10)}
			return g.Op("Sub", g.i, g.Op("Concat", parts, onnx.IntAttr("axis", -1)))
		},
		"the last ones": func(g *graph) *onnx.Value {
			tail := g.Op("Slice", g.j, []int64{-1}, []int64{math.MaxInt64}, []int64{1})
			return g.Op("Sub", tail, g.i)
		},
		"turned": func(g *graph) *onnx.Value {
			return g.Op("Slice", g.Op("Sub", g.i, g.j), []int64{-1}, []int64{math.MinInt64}, []int64{1}, []int64{-1})
		},
		"gathered": func(g *graph) *onnx.Value {
			return g.Op("Gather", g.Op("Mul", g.Op("Squeeze", g.j), 3), g.i, onnx.IntAttr("axis", 0))
		},
		"a table": func(g *graph) *onnx.Value {
			table := ints("table", []int{3}, 5, 7, 9)(g)
			return g.Op("Add", g.Op("Sub", g.i, g.j), g.Op("Gather", table, -2))
		},
		"a growing table": func(g *graph) *onnx.Value {
			table := ints("table", []int{14}, 0, 1, 2, 3, 4, 4, 4, 9, 11, 13, 15, 17, 19, 21)(g)
			return g.Op("Sub", g.i, g.Op("Gather", table, g.j))
		},
		"a table by distance": func(g *graph) *onnx.Value {
			const n = 64 // greater than the lengths in all worlds
			var list []int64
			for i := range n {
				for j := range n {
					list = append(list, int64(min(max(i-j, -1), 3)))
				}
			}
			table := ints("table", []int{1, n, n}, list...)(g)
			rows := g.Op("Gather", g.Op("Squeeze", table, []int64{0}), g.Op("Squeeze", g.i, []int64{1}),
				onnx.IntAttr("axis", 0))
			return g.Op("Sub", g.Op("Gather", rows, g.Op("Squeeze", g.j, []int64{0}), onnx.IntAttr("axis", 1)),
				g.Op("Sub", g.i, g.j))
		},
		"padding": func(g *graph) *onnx.Value {
			m := g.Op("Cast", g.Op("Slice", g.mask, []int64{0}, []int64{1}, []int64{0}), onnx.IntAttr("to",
				int64(onnx.Bool)))
			return g.Op("And", m, g.Op("LessOrEqual", g.j, g.i))
		},
		"padding as a number": func(g *graph) *onnx.Value {
			m := floats(g, g.Op("Slice", g.mask, []int64{1}, []int64{2}, []int64{0}))
			return g.Op("Add", g.Op("Mul", g.Op("Sub", 1.0, m), -1e9), g.Op("Mul", floats(g, g.i), 0.0))
		},
		"split and joined": func(g *graph) *onnx.Value {
			d := g.Op("Expand", g.Op("Unsqueeze", g.Op("Sub", g.i, g.j), []int64{0}), []int64{6, 1, 1})
			p := g.Op("Reshape", d, g.Op("Concat", []int64{2, 3, -1}, g.Op("Reshape", g.all, []int64{1}),
				onnx.IntAttr("axis", 0)))
			q := g.Op("Reshape", g.Op("Transpose", g.Op("Reshape", g.Op("Shape", g.past), []int64{2, 2}),
				onnx.IntsAttr("perm", []int64{1, 0})), []int64{4})
			return g.Op("Add", g.Op("Squeeze", g.Op("Slice", p, []int64{1, 2}, []int64{2, 3}, []int64{0, 1}),
				[]int64{0, 1}), g.Op("Gather", q, 2))
		},
		"reduced": func(g *graph) *onnx.Value {
			s := g.Op("ReduceSum", g.Op("Shape", g.past), []int64{0}, onnx.IntAttr("keepdims", 0))
			return g.Op("Add", g.Op("Sub", g.i, g.j), g.Op("Max", s, g.Op("ReduceMax", g.Op("Shape", g.x))))
		},
		"far and near": func(g *graph) *onnx.Value {
			d := g.Op("Abs", g.Op("Sub", g.i, g.j))
			return g.Op("Where", g.Op("Less", g.Op("Min", d, 2), 2), g.Op("Sign", g.Op("Sub", g.i, g.j)), d)
		},
		"clipped": func(g *graph) *onnx.Value { return g.Op("Clip", g.Op("Sub", g.i, g.j), -2, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			out := build(g)
			out.SetType(onnxtest.Type(infer.Analyze(g.Model).DataType(out)))
			g.Output(out)
			e, err := reference.New(g.Model, reference.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []struct{ batch, queries, past int }{{2, 3, 0}, {2, 1, 4}, {3, 5, 7}} {
				keys := at.past + at.queries
				mask := make([]int64, at.batch*keys)
				for i := range mask {
					mask[i] = int64(i%3) % 2
				}
				zeros := func(dims ...int) *reference.Tensor {
					return reference.NewFloats(onnx.Float, dims, make([]float64, match.Elements(dims)))
				}
				got, err := e.Run(map[string]*reference.Tensor{"x": zeros(at.batch, at.queries, 8),
					"past": zeros(at.batch, 2, at.past, 4), "mask": reference.NewInts(onnx.Int64,
						[]int{at.batch, keys}, mask)})
				if err != nil {
					t.Fatal(err)
				}
				table := newTable(got[out.Name])
				for i := range table.t.Len() {
					row, col := i/table.t.Shape[1], i%table.t.Shape[1]
					s := g.reader()
					a, b := Of(s.Natural("i")), Of(s.Natural("j"))
					x := s.Element(out, s.Sum(a), s.Sum(b)) // at an arbitrary place, evaluated at this one
					is := map[*Sum]int{s.batch: at.batch, s.queries: at.queries, s.past: at.past, a: row, b: col}
					for v, n := range is {
						s.AtLeast(v, Number(int64(n)))
						s.AtLeast(Number(int64(n)), v)
					}
					s.valid = func(name string, v *Var) {
						n := mask[map[string]int{"0,j": col, "1,j": keys + col}[name]]
						s.AtLeast(Of(v), Number(n))
						s.AtLeast(Number(n), Of(v))
					}
					want := table.at(i)
					values, err := s.Only(s.integers(nil, "Sub", x, s.intern(Expr{op: opValue,
						value: Value{Number: want}})))
					if err == nil && values[0].Sum != nil {
						err = s.Cases(func(c *Case) error {
							if is, err := c.IsZero(values[0].Sum); err != nil || is {
								return err
							}
							return &UnknownError{What: "another number"}
						})
					} else if err == nil && values[0].Number != 0 {
						err = &UnknownError{What: fmt.Sprint("differs by ", values[0].Number)}
					}
					if err != nil {
						t.Fatalf("%v, %d, %d: want %v: %v", at, row, col, want, err)
					}
				}
			}
		})
	}
}
