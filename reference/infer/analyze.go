package infer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

// maxPasses bounds how often the analysis restarts with other numbers.
const maxPasses = 10

// maxDepth bounds nested function calls.
const maxDepth = 32

// Analyze finds facts about the values of a model: of its main graph, the nested graphs, and the bodies of its
// functions. Facts in a body hold for all calls, or for any inputs if the function is not called. Analyze never fails:
// facts that it cannot find stay unknown.
func Analyze(m *onnx.Model) *Facts {
	if m == nil || m.Graph == nil {
		return &Facts{}
	}
	an := newAnalysis(m, newSymbols())
	an.grows = true
	return an.run()
}

// AnalyzeTokens is Analyze with worlds in which a batch has one sequence of these numbers of tokens. Worlds with few
// numbers distinguish less than those of Analyze: use them to evaluate at certain sizes. A value that is the same in
// all of them need not be constant.
func AnalyzeTokens(m *onnx.Model, tokens [Worlds]int64) *Facts {
	return analyze(m, symbolsFrom(sized(tokens), term.NewTable()), nil)
}

// The analysis stops and leaves the rest unknown after leastVisits plus visitsPerNode times the number of nodes.
const (
	leastVisits   = 1 << 19
	visitsPerNode = 1 << 8
)

// nodes counts the nodes of the model including those of its functions.
func (an *analysis) nodes() int {
	n := 0
	count := func(g *onnx.Graph) { n += len(g.Nodes) }
	an.model.Graph.Walk(count)
	for _, f := range an.model.Functions {
		f.Body.Walk(count)
	}
	return n
}

// analyze is Analyze with a symbol table and with facts that override the declarations of inputs.
func analyze(m *onnx.Model, symbols *symbols, given map[*onnx.Value]*rules.Fact) *Facts {
	an := newAnalysis(m, symbols)
	an.given = given
	return an.run()
}

// run passes through the model until it learns nothing more.
func (an *analysis) run() *Facts {
	an.mostVisits = leastVisits + visitsPerNode*an.nodes()
	for pass := 1; ; pass++ {
		an.Solving = pass < maxPasses
		f := an.pass()
		if an.Solving && an.grows && an.grow(f) {
			continue
		}
		if !an.modest && an.exceeds() {
			an.modest, an.unnamed, an.grown = true, nil, nil
			*an.symbols = *symbolsFrom(modest, an.symbols.table)
			continue
		}
		if !an.Solving || len(an.differences) == 0 && !an.hint(f) && !an.learn() {
			if an.Solving && an.fills(f) {
				continue
			}
			return f
		}
		if len(an.differences) > 0 && !an.solve() && !an.rowsPicked(f) { // unsolvable
			if an.fills(f) {
				continue
			}
			an.Solving = false // once more, without guessing
			return an.propagate()
		}
	}
}

// pass propagates facts through the model, and collects anew what does not fit.
func (an *analysis) pass() *Facts {
	an.differences, an.Equalities, an.Misfits = nil, nil, map[*onnx.Node][Worlds]bool{}
	an.Short, an.clashes = map[*onnx.Node]int64{}, [Worlds]int{}
	return an.propagate()
}

// analysis is one run of Analyze.
type analysis struct {
	rules.Pass
	symbols     *symbols
	model       *onnx.Model
	functions   map[functionKey]*onnx.Function
	given       map[*onnx.Value]*rules.Fact
	modest      bool // the numbers are modest
	differences []difference
	grows       bool // the numbers of symbols may grow
	grown       map[*symbol]bool
	clashes     [Worlds]int // the nodes of the last pass whose sizes do not fit
	filled      bool        // fills has run
	unnamed     map[*onnx.Value][]*symbol
	constants   map[*onnx.Value]*rules.Fact
	bodies      map[*onnx.Value]*rules.Fact // facts of functions' bodies, merged over the calls
	called      map[*onnx.Function]bool
	memo        map[string]functionCall
	slab        []rules.Fact
	call        rules.Call
	depth       int
	// visits counts the visited nodes, again for each call and each round of a loop.
	visits, mostVisits int // 0: no bound
}

func newAnalysis(m *onnx.Model, s *symbols) *analysis {
	an := &analysis{symbols: s, model: m, functions: make(map[functionKey]*onnx.Function, len(m.Functions))}
	an.Pass = rules.Pass{Table: s.table, Fresh: func(n *onnx.Node, k, w int) int64 { return s.at(s.freshFor(n, k), w) }}
	for _, f := range m.Functions {
		an.functions[functionKey{rules.Canonical(f.Domain), f.Name, f.Overload}] = f
	}
	return an
}

// forget drops the facts about functions.
func (an *analysis) forget() {
	an.called, an.bodies = map[*onnx.Function]bool{}, map[*onnx.Value]*rules.Fact{}
	an.memo = map[string]functionCall{}
}

type functionKey struct{ domain, name, overload string }

// propagate goes once through the model with the current numbers.
func (an *analysis) propagate() *Facts {
	m := an.model
	if an.unnamed == nil {
		an.unnamed = map[*onnx.Value][]*symbol{}
		an.constants = make(map[*onnx.Value]*rules.Fact, len(m.Graph.Initializers()))
	}
	an.forget()
	values := 0
	m.Graph.Walk(func(g *onnx.Graph) { values += len(g.Nodes) + len(g.Inputs) + len(g.Initializers()) })
	fr := &rules.Frame{Opset: m.Opset(""), Facts: make(map[*onnx.Value]*rules.Fact, values),
		Eval: reference.NewForOpset(m.Opset(""), m.Functions, reference.Options{})}
	for _, v := range m.Graph.Inputs {
		fr.Facts[v] = an.input(v)
	}
	an.graph(m.Graph, fr)
	for _, f := range m.Functions {
		if !an.called[f] {
			an.enter(f, nil, nil, fr)
		}
	}
	for v, x := range an.bodies {
		fr.Facts[v] = x
	}
	for _, s := range an.symbols.list {
		s.settled = an.symbols.proven(s)
	}
	return &Facts{facts: fr.Facts, symbols: an.symbols.list, table: an.symbols.table, opset: fr.Opset,
		functions: m.Functions}
}

// input returns the facts of an input of the main graph: its declared shape with a number for each symbolic dimension.
func (an *analysis) input(v *onnx.Value) *rules.Fact {
	if x := an.given[v]; x != nil {
		return x
	}
	t, ok := v.Type()
	if !ok {
		return rules.Nothing
	}
	x := an.newFact()
	x.DataType = t.DataType
	if !t.HasShape {
		x.Same = true
		return x
	}
	syms := an.unnamed[v]
	if syms == nil {
		syms = make([]*symbol, len(t.Dims))
		an.unnamed[v] = syms
	}
	x.Shape, x.Same = an.symbols.shapeOf(t.Dims, func(axis int) *symbol {
		if syms[axis] == nil {
			syms[axis] = an.symbols.add("", axis)
		}
		return syms[axis]
	})
	return x
}

// graph propagates through the nodes of a graph. The facts of its inputs must be in the frame.
func (an *analysis) graph(g *onnx.Graph, fr *rules.Frame) {
	for _, v := range g.Initializers() {
		if !v.IsInput {
			fr.Facts[v] = an.constant(v)
		}
	}
	for _, n := range g.Nodes {
		an.node(n, fr)
	}
}

// constant returns the facts of an initializer or a Constant node's output, and caches them for further passes.
func (an *analysis) constant(v *onnx.Value) *rules.Fact {
	if x := an.constants[v]; x != nil {
		return x
	}
	x := rules.Nothing
	if t := v.Constant(); t != nil {
		x = an.newFact()
		x.Same = true
		x.DataType = t.DataType
		shape := t.Dims
		if shape == nil {
			shape = []int64{}
		}
		var val *reference.Tensor
		if n := t.Len(); n < 0 {
			shape = nil
		} else if n <= MaxElements {
			if r, err := reference.FromONNX(t); err == nil { // the file of an external tensor may be missing
				val = r
			}
		}
		x.Shape, x.Value = everywhere(shape), everywhere(val)
	}
	an.constants[v] = x
	return x
}

func everywhere[T any](x T) (r [rules.AllWorlds]T) {
	for w := range r {
		r[w] = x
	}
	return r
}

// newFact takes a fact from a slab, which is cheaper than separate allocations.
func (an *analysis) newFact() *rules.Fact {
	if len(an.slab) == 0 {
		an.slab = make([]rules.Fact, 256)
	}
	x := &an.slab[0]
	an.slab = an.slab[1:]
	return x
}
