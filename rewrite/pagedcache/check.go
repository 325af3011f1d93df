package pagedcache

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A model with pools computes the same as before if each token gets the same results as in a batch with only its
// sequence. The claim runs the whole model in both forms, over several steps, so nothing in it has to be understood
// (except, in a large model, that products with weights are functions of rows: parts.go).

// chunk is the part of a sequence in one step.
type chunk struct {
	sequence  int
	from      int // the sequence that computed the past tokens: another one for a shared prefix
	past, new int
}

// stepsTried have sequences that join later, chunks that end inside a block, a sequence without new tokens, another one
// that begins with a block of the first, and one that steps back. At the end all blocks are used.
var stepsTried = [][]chunk{
	{{0, 0, 0, 5}, {1, 1, 0, 0}, {2, 2, 0, 2}},
	{{0, 0, 5, 1}, {1, 1, 0, 3}, {2, 2, 2, 1}},
	{{3, 0, 4, 3}, {0, 0, 6, 3}, {1, 1, 3, 1}},
	{{0, 0, 7, 2}, {2, 2, 3, 6}, {3, 3, 7, 1}},
}

// The pool of the trial: tokens of a block, and the blocks in the order in which sequences get them.
const blockTried = 4

var blocksTried = []int{5, 2, 7, 0, 3, 6, 1, 4}

// scenario has the inputs of the unconverted model in each chunk.
type scenario struct {
	facts   *infer.Facts // of the unconverted model
	inputs  []*roles.Input
	caches  map[*onnx.Value]*onnx.Value // past to present, as attention computes it
	outputs []*onnx.Value               // those that are not caches
	steps   [][]map[*onnx.Value]*reference.Tensor
	alone   []map[*onnx.Value]*reference.Tensor // all values of the first step, by chunk; nil without tokens
	packed  map[*onnx.Value]*reference.Tensor
	want    []*reference.Tensor // the outputs of all steps
}

func newScenario(m *onnx.Model) (*scenario, error) {
	s := &scenario{facts: infer.Analyze(m), inputs: roles.Find(m), caches: map[*onnx.Value]*onnx.Value{}}
	presents, view := map[*onnx.Value]bool{}, match.New(m.Graph, s.facts, nil) // sees through copies
	for _, n := range m.Graph.Nodes {
		op := fused.CachedOpOf(n)
		if op == nil {
			continue
		}
		for k, i := range op.Pasts {
			past, present := view.Resolve(n.Input(i)), n.OutputValue(1+k)
			if past.IsInput && present != nil && s.caches[past] == nil {
				s.caches[past] = present
				presents[present] = true
			}
		}
	}
	for _, v := range m.Graph.Outputs {
		if !presents[view.Resolve(v)] {
			s.outputs = append(s.outputs, v)
		}
	}
	for _, in := range s.inputs {
		if s.isState(in) {
			return nil, fmt.Errorf("input %q is a state of each sequence without an axis for tokens, and a step packs "+
				"the tokens of several sequences: use --cache static", in.Value.Name)
		}
	}
	for _, step := range stepsTried {
		var list []map[*onnx.Value]*reference.Tensor
		for _, c := range step {
			given := map[*onnx.Value]*reference.Tensor{}
			for i, in := range s.inputs {
				x, err := s.input(i, in, c)
				if err != nil {
					return nil, err
				}
				given[in.Value] = x
			}
			list = append(list, given)
		}
		s.steps = append(s.steps, list)
	}
	return s, nil
}

// isState reports whether an input other than a cache has a fixed size for each sequence.
func (s *scenario) isState(in *roles.Input) bool {
	return s.caches[in.Value] == nil && len(in.Value.Uses()) > 0 && in.DataType.IsFloat() && len(in.Dims) >= 2 &&
		!slices.ContainsFunc(in.Dims[1:], func(d onnx.Dim) bool { return d.Value < 0 })
}

// input returns an input of the unconverted model for a chunk of one sequence: nil for a cache.
func (s *scenario) input(i int, in *roles.Input, c chunk) (*reference.Tensor, error) {
	shape := []int64{1, int64(c.new)}
	for _, d := range in.Dims[min(2, len(in.Dims)):] {
		shape = append(shape, d.Value)
	}
	ints := func(n int, at func(k int) int64) *reference.Tensor {
		list := make([]int64, n)
		for k := range list {
			list[k] = at(k)
		}
		return reference.NewInts(in.DataType, []int{1, n}, list)
	}
	switch {
	case s.caches[in.Value] != nil:
		return nil, nil
	case in.Role == roles.CacheFlag || len(in.Value.Uses()) == 0:
		return reference.NewInts(in.DataType, slices.Repeat([]int{1}, len(in.Dims)), []int64{1}), nil
	case in.Role == roles.Position && len(in.Dims) == 2:
		return ints(c.new, func(k int) int64 { return int64(c.past + k) }), nil
	case in.Role == roles.Mask && len(in.Dims) == 2:
		return prove.NoPadding.Tensor(in.DataType, []int64{1, int64(c.past + c.new)}), nil
	case in.Role == roles.Index && len(in.Dims) == 2:
		rows := int64(2)
		for _, d := range in.Tables {
			rows = max(rows, d.Value)
		}
		return ints(c.new, func(k int) int64 {
			return int64(7*(c.past+k)+5*c.sequence+c.past*c.sequence+1) % rows
		}), nil
	case in.DataType.IsFloat() && len(in.Dims) == 3 && in.Dims[2].Value > 0:
		return prove.MakeInput(prove.Normal, i+16*c.sequence+64*c.past, in.DataType, shape)
	}
	return nil, fmt.Errorf("input %q (%s) is not known, so the model cannot be run on one sequence", in.Value.Name,
		in.Role)
}

// claim claims that the model computes the same for packed sequences as for one sequence.
func (c *Change) claim() *prove.Claim {
	names := onnx.Names(c.trial.outputs)
	var all []string
	for range stepsTried {
		all = append(all, names...)
	}
	return &prove.Claim{What: "packed sequences", Exact: prove.Structural, Outputs: all, Before: c.runAlone,
		After: c.runPacked,
		Trials: func(yield func(prove.Trial, error) bool) {
			yield(prove.Trial{Name: fmt.Sprintf("%d steps of up to %d sequences", len(stepsTried), len(stepsTried[0]))},
				nil)
		},
		Differs: func(_ prove.Trial, _ bool, err error) error {
			if n := c.mixing(); n != nil {
				return fmt.Errorf("node %q (%s) computes something else for packed sequences than for one sequence: "+
					"it looks along the sequence or the batch", n.Label(), n.OpType)
			}
			return fmt.Errorf("packed sequences differ from the same sequences one by one: %w", err)
		}}
}

// eval evaluates the nodes of the model as it is, and keeps all values.
func (c *Change) eval(o reference.Options, env map[*onnx.Value]*reference.Tensor) error {
	if c.parts != nil {
		o.Override = c.parts.evaluate
	}
	return reference.NewForOpset(c.Model.Opset(""), c.Model.Functions, o).Eval(c.Model.Graph.Nodes, env)
}

// runAlone computes the outputs of each step, with the rows of all chunks one after another.
func (c *Change) runAlone(o reference.Options, _ []*reference.Tensor) (out []*reference.Tensor, err error) {
	s, kept := c.trial, map[int]map[*onnx.Value]*reference.Tensor{}
	for i, step := range stepsTried {
		rows := make([]*reference.Tensor, len(s.outputs))
		for j, at := range step {
			env := map[*onnx.Value]*reference.Tensor{}
			for v, x := range s.steps[i][j] {
				if x != nil {
					env[v] = x
				}
			}
			for past := range s.caches {
				if env[past], err = firstTokens(past, kept[at.from][past], at.past); err != nil {
					return nil, err
				}
			}
			if at.new == 0 {
				if i == 0 {
					s.alone = append(s.alone, nil)
				}
				continue
			}
			if err := c.eval(o, env); err != nil {
				return nil, err
			}
			if i == 0 {
				s.alone = append(s.alone, env)
			}
			kept[at.sequence] = map[*onnx.Value]*reference.Tensor{}
			for past, present := range s.caches {
				kept[at.sequence][past] = env[present]
			}
			for k, v := range s.outputs {
				rows[k] = appendRows(rows[k], env[v])
			}
		}
		out = append(out, rows...)
	}
	s.want = out
	return out, nil
}

// firstTokens returns the first n tokens of a cache of one sequence.
func firstTokens(past *onnx.Value, cache *reference.Tensor, n int) (*reference.Tensor, error) {
	t, _ := past.Type()
	if len(t.Dims) != 4 {
		return nil, fmt.Errorf("input %q is %s: expected a cache [batch, heads, tokens, width]", past.Name, t)
	}
	heads, width := int(roles.Number(t.Dims[1]).Value), int(roles.Number(t.Dims[3]).Value)
	if heads < 1 || width < 1 {
		return nil, fmt.Errorf("input %q is %s: expected a cache with fixed heads and width", past.Name, t)
	}
	var list []float64
	for h := range heads {
		if n > 0 {
			at := h * cache.Shape[prove.CacheAxis] * width
			list = append(list, cache.F[at:at+n*width]...)
		}
	}
	return reference.NewFloats(t.DataType, []int{1, heads, n, width}, list), nil
}

// appendRows appends the rows of an output of one sequence, [1, rows, ...] or [1, width].
func appendRows(rows, x *reference.Tensor) *reference.Tensor {
	width := x.Shape[len(x.Shape)-1]
	if rows == nil {
		rows = new(reference.Tensor)
	}
	list := slices.Concat(rows.F, x.F)
	return reference.NewFloats(x.DataType, []int{len(list) / max(width, 1), width}, list)
}

// runPacked computes the same as runAlone with the converted model.
func (c *Change) runPacked(o reference.Options, _ []*reference.Tensor) (out []*reference.Tensor, err error) {
	err = c.eachStep(o, c.floatPools(), func(step int, env map[*onnx.Value]*reference.Tensor) error {
		if step == 0 {
			c.trial.packed = env
		}
		rows, err := c.rows(env, stepsTried[step])
		out = append(out, rows...)
		return err
	})
	return out, err
}

// floatPools returns pools of NaN.
func (c *Change) floatPools() map[*onnx.Value]*reference.Tensor {
	pools := map[*onnx.Value]*reference.Tensor{}
	for _, s := range c.sites {
		for _, past := range s.past {
			t, _ := past.Type()
			heads, width := roles.Number(t.Dims[1]).Value, roles.Number(t.Dims[3]).Value
			shape := []int{len(blocksTried), blockTried, int(heads), int(width)}
			junk := slices.Repeat([]float64{math.NaN()}, shape[0]*shape[1]*shape[2]*shape[3])
			pools[past] = reference.NewFloats(t.DataType, shape, junk)
		}
	}
	return pools
}

// eachStep runs the converted model on the steps of the trial, and calls visit with all values of each. pools has the
// inputs with blocks; the outputs of a step are the pools of the next one.
func (c *Change) eachStep(o reference.Options, pools map[*onnx.Value]*reference.Tensor,
	visit func(step int, env map[*onnx.Value]*reference.Tensor) error) (err error) {
	free := blocksTried
	tables := map[int][]int64{}
	for i, step := range stepsTried {
		env := map[*onnx.Value]*reference.Tensor{}
		cum, lengths, table, rings, most := []int64{0}, []int64{}, []int64{}, []int64{}, 3
		for j, at := range step {
			if at.from != at.sequence {
				tables[at.sequence] = slices.Clone(tables[at.from][:at.past/blockTried])
			}
			for len(tables[at.sequence])*blockTried < at.past+at.new {
				tables[at.sequence], free = append(tables[at.sequence], int64(free[0])), free[1:]
			}
			cum, lengths = append(cum, cum[j]+int64(at.new)), append(lengths, int64(at.past))
			row := slices.Concat(tables[at.sequence], slices.Repeat([]int64{-1}, most))
			table, rings = append(table, row[:most]...), append(rings, c.ringOf(row[:most], at.past)...)
			for _, v := range c.packed {
				if env[v], err = appendTokens(env[v], c.trial.steps[i][j][v]); err != nil {
					return err
				}
			}
		}
		for v, x := range pools {
			env[v] = x
		}
		env[c.cumulative] = reference.NewInts(onnx.Int32, []int{len(cum)}, cum)
		env[c.past] = reference.NewInts(onnx.Int32, []int{len(lengths)}, lengths)
		env[c.table] = reference.NewInts(onnx.Int32, []int{len(step), most}, table)
		if len(c.windowed) > 0 {
			env[c.rings] = reference.NewInts(onnx.Int32, []int{len(step), most}, rings)
		}
		if err := c.eval(o, env); err != nil {
			return err
		}
		if err := visit(i, env); err != nil {
			return err
		}
		for _, s := range c.sites {
			for k, past := range s.past {
				if s.present[k] != nil {
					pools[past] = env[s.present[k]]
				}
			}
		}
		for _, p := range c.coded {
			if p.scaleOut != nil {
				pools[p.scale] = env[p.scaleOut]
			}
		}
	}
	return nil
}

// rows returns the outputs of a step, with a row for each token, or for each sequence with new tokens.
func (c *Change) rows(env map[*onnx.Value]*reference.Tensor, step []chunk) (out []*reference.Tensor, err error) {
	for _, v := range c.trial.outputs {
		x := env[v]
		if x == nil || len(x.Shape) != 2 {
			return nil, fmt.Errorf("output %q is %v: expected rows", v.Name, x)
		}
		if c.lastOnly && x.Shape[0] == len(step) {
			x = c.withTokens(x, step)
		}
		out = append(out, x)
	}
	return out, nil
}

// withTokens drops the rows of sequences without new tokens.
func (c *Change) withTokens(x *reference.Tensor, step []chunk) *reference.Tensor {
	width, rows := x.Shape[1], 0
	var list []float64
	for j, at := range step {
		if at.new > 0 {
			list, rows = append(list, x.F[j*width:(j+1)*width]...), rows+1
		}
	}
	return reference.NewFloats(x.DataType, []int{rows, width}, list)
}

// appendTokens appends the tokens of a chunk, [1, tokens, ...], to packed ones.
func appendTokens(packed, x *reference.Tensor) (*reference.Tensor, error) {
	if x == nil {
		return nil, errors.New("a packed input has no tokens")
	}
	shape := slices.Clone(x.Shape[1:])
	if packed != nil {
		shape[0] += packed.Shape[0]
	} else {
		packed = &reference.Tensor{}
	}
	if x.IsFloat() {
		return reference.NewFloats(x.DataType, shape, slices.Concat(packed.F, x.F)), nil
	}
	return reference.NewInts(x.DataType, shape, slices.Concat(packed.I, x.I)), nil
}

// mixing returns the first node whose results for the packed sequences of the first step differ from the results for
// one sequence, or nil.
func (c *Change) mixing() *onnx.Node {
	tokens := 0
	for _, at := range stepsTried[0] {
		tokens += at.new
	}
	for _, n := range c.Model.Graph.Nodes {
		for _, v := range n.Outputs {
			if x := c.trial.packed[v]; x != nil && x.IsFloat() && len(x.Shape) > 1 && c.mixed(v, x, tokens) {
				return n
			}
		}
	}
	return nil
}

func (c *Change) mixed(v *onnx.Value, packed *reference.Tensor, tokens int) bool {
	begin := 0
	for j, at := range stepsTried[0] {
		env := c.trial.alone[j]
		if env == nil {
			continue
		}
		x := env[v]
		if x == nil {
			return false // a node of the change itself
		}
		if slices.Equal(x.Shape, packed.Shape) && slices.Equal(x.F, packed.F) {
			continue // no value of tokens
		}
		axis := slices.IndexFunc(packed.Shape, func(n int) bool { return n == tokens })
		if axis < 0 || len(x.Shape) != len(packed.Shape) || x.Shape[axis] != at.new {
			return true
		}
		inner, outer := 1, 1
		for i, n := range x.Shape {
			switch {
			case i < axis:
				outer *= n
			case i > axis:
				inner *= n
			}
			if i != axis && n != packed.Shape[i] {
				return true
			}
		}
		for o := range outer {
			for k := range at.new * inner {
				a, b := x.F[o*at.new*inner+k], packed.F[(o*tokens+begin)*inner+k]
				if d := math.Abs(a - b); d > 1e-9*max(1, math.Abs(a)) {
					return true
				}
			}
		}
		begin += at.new
	}
	return false
}
