package infer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
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
func analyze(m *onnx.Model, symbols *symbols, given map[*onnx.Value]*fact) *Facts {
	an := newAnalysis(m, symbols)
	an.given = given
	return an.run()
}

// run passes through the model until it learns nothing more.
func (an *analysis) run() *Facts {
	an.mostVisits = leastVisits + visitsPerNode*an.nodes()
	for pass := 1; ; pass++ {
		an.solving = pass < maxPasses
		an.differences, an.equalities, an.misfits = nil, nil, map[*onnx.Node][Worlds]bool{}
		an.short = map[*onnx.Node]int64{}
		f := an.pass()
		if an.solving && an.grows && an.grow(f) {
			continue
		}
		if !an.modest && an.exceeds() {
			an.modest, an.unnamed, an.grown = true, nil, nil
			*an.symbols = *symbolsFrom(modest, an.symbols.table)
			continue
		}
		if !an.solving || len(an.differences) == 0 && !an.hint(f) && !an.learn() {
			return f
		}
		if len(an.differences) > 0 && !an.solve() && !an.rowsPicked(f) { // unsolvable: once more, without guessing
			an.solving = false
			return an.pass()
		}
	}
}

// analysis is one run of Analyze.
type analysis struct {
	model     *onnx.Model
	functions map[functionKey]*onnx.Function
	symbols   *symbols
	given     map[*onnx.Value]*fact
	// solving means that another pass may follow, so differences are recorded and guessed over.
	solving     bool
	modest      bool // the numbers are modest
	differences []difference
	equalities  [][2]int64                  // proven pairs of equal numbers in the proof world
	misfits     map[*onnx.Node][Worlds]bool // the nodes that cannot run in a world
	short       map[*onnx.Node]int64        // the nodes whose windows do not fit, with their strides
	grows       bool                        // the numbers of symbols may grow
	grown       map[*symbol]bool
	unnamed     map[*onnx.Value][]*symbol
	constants   map[*onnx.Value]*fact
	bodies      map[*onnx.Value]*fact // facts of functions' bodies, merged over the calls
	called      map[*onnx.Function]bool
	memo        map[string]functionCall
	slab        []fact
	call        call
	depth       int
	// visits counts the visited nodes, again for each call and each round of a loop.
	visits, mostVisits int // 0: no bound
}

func newAnalysis(m *onnx.Model, s *symbols) *analysis {
	an := &analysis{model: m, symbols: s, functions: make(map[functionKey]*onnx.Function, len(m.Functions))}
	for _, f := range m.Functions {
		an.functions[functionKey{canonical(f.Domain), f.Name, f.Overload}] = f
	}
	return an
}

// forget drops the facts about functions.
func (an *analysis) forget() {
	an.called, an.bodies = map[*onnx.Function]bool{}, map[*onnx.Value]*fact{}
	an.memo = map[string]functionCall{}
}

type functionKey struct{ domain, name, overload string }

func canonical(domain string) string {
	if onnx.IsStandardDomain(domain) {
		return ""
	}
	return domain
}

// frame is the context of a graph: the model's main graph, or one call of a function.
type frame struct {
	opset int64
	attrs map[string]*onnx.Attribute // the attributes of the call
	facts map[*onnx.Value]*fact
	eval  *reference.Evaluator
	// function means that references to attributes must be resolved.
	function bool
}

func (fr *frame) attr(n *onnx.Node, name string) *onnx.Attribute {
	a := n.Attr(name)
	if a == nil || a.RefName == "" {
		return a
	}
	return fr.attrs[a.RefName]
}

// pass propagates once through the model with the current numbers.
func (an *analysis) pass() *Facts {
	m := an.model
	if an.unnamed == nil {
		an.unnamed = map[*onnx.Value][]*symbol{}
		an.constants = make(map[*onnx.Value]*fact, len(m.Graph.Initializers()))
	}
	an.forget()
	values := 0
	m.Graph.Walk(func(g *onnx.Graph) { values += len(g.Nodes) + len(g.Inputs) + len(g.Initializers()) })
	fr := &frame{opset: m.Opset(""), facts: make(map[*onnx.Value]*fact, values),
		eval: reference.NewForOpset(m.Opset(""), m.Functions, reference.Options{})}
	for _, v := range m.Graph.Inputs {
		fr.facts[v] = an.input(v)
	}
	an.graph(m.Graph, fr)
	for _, f := range m.Functions {
		if !an.called[f] {
			an.enter(f, nil, nil, fr)
		}
	}
	for v, x := range an.bodies {
		fr.facts[v] = x
	}
	for _, s := range an.symbols.list {
		s.settled = an.symbols.proven(s)
	}
	return &Facts{facts: fr.facts, symbols: an.symbols.list, table: an.symbols.table, opset: fr.opset,
		functions: m.Functions}
}

// input returns the facts of an input of the main graph: its declared shape with a number for each symbolic dimension.
func (an *analysis) input(v *onnx.Value) *fact {
	if x := an.given[v]; x != nil {
		return x
	}
	t, ok := v.Type()
	if !ok {
		return nothing
	}
	x := an.newFact()
	x.dtype = t.DataType
	if !t.HasShape {
		x.same = true
		return x
	}
	syms := an.unnamed[v]
	if syms == nil {
		syms = make([]*symbol, len(t.Dims))
		an.unnamed[v] = syms
	}
	x.shape, x.same = an.symbols.shapeOf(t.Dims, func(axis int) *symbol {
		if syms[axis] == nil {
			syms[axis] = an.symbols.add("", axis)
		}
		return syms[axis]
	})
	return x
}

// graph propagates through the nodes of a graph. The facts of its inputs must be in the frame.
func (an *analysis) graph(g *onnx.Graph, fr *frame) {
	for _, v := range g.Initializers() {
		if !v.IsInput {
			fr.facts[v] = an.constant(v)
		}
	}
	for _, n := range g.Nodes {
		an.node(n, fr)
	}
}

// constant returns the facts of an initializer or a Constant node's output, and caches them for further passes.
func (an *analysis) constant(v *onnx.Value) *fact {
	if x := an.constants[v]; x != nil {
		return x
	}
	x := nothing
	if t := v.Constant(); t != nil {
		x = an.newFact()
		x.same = true
		x.dtype = t.DataType
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
		x.shape, x.val = everywhere(shape), everywhere(val)
	}
	an.constants[v] = x
	return x
}

func everywhere[T any](x T) (r [worlds]T) {
	for w := range r {
		r[w] = x
	}
	return r
}

// newFact takes a fact from a slab, which is cheaper than separate allocations.
func (an *analysis) newFact() *fact {
	if len(an.slab) == 0 {
		an.slab = make([]fact, 256)
	}
	x := &an.slab[0]
	an.slab = an.slab[1:]
	return x
}
