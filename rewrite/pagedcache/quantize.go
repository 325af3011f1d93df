package pagedcache

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// The types of codes by their names for callers.
var codeTypes = map[string]onnx.DataType{"int8": onnx.Int8, "fp8": onnx.Float8E4M3FN}

// Types lists the types that ParseType knows.
func Types() []string { return slices.Sorted(maps.Keys(codeTypes)) }

// ParseType parses the type of the pools: "" keeps the type of the keys and values.
func ParseType(s string) (onnx.DataType, error) {
	if t, ok := codeTypes[s]; ok || s == "" {
		return t, nil
	}
	return 0, fmt.Errorf("%q: must be %s", s, strings.Join(Types(), " or "))
}

// codedPool is a pool [blocks, block, heads, width] whose elements are codes, and its scales [blocks, heads].
type codedPool struct{ codes, scale, scaleOut *onnx.Value }

// quantize makes the pools of a model that is proven with pools of floats hold codes. Numbers
// change, as the caller asked for; checkCodes shows that they change only by the rounding of keys and values.
func (c *Change) quantize() error {
	if c.codes == onnx.Undefined {
		return nil
	}
	g, pools := c.Model.Graph, map[*onnx.Value]*codedPool{}
	dims := func(pool *onnx.Value, heads onnx.Dim) onnx.Type {
		return onnx.Type{DataType: onnx.Float, HasShape: true,
			Dims: []onnx.Dim{{Value: -1, Param: c.blocksOf(pool)}, heads}}
	}
	for _, s := range c.sites {
		n := s.node
		s.in = slices.Clone(n.Inputs)
		attrs := fused.QPagedAttention{PagedAttention: fused.Read[fused.PagedAttention](n.Attributes)}
		in, use := slices.Clone(n.Inputs), fused.Site{Opset: s.use.Opset, Types: slices.Clone(s.use.Types),
			Attributes: attrs.Attributes()}
		in = slices.Insert(in, fused.QPagedAttentionKeyScale, nil, nil)
		use.Types = slices.Insert(use.Types, fused.QPagedAttentionKeyScale, onnx.Float, onnx.Float)
		for k, past := range s.past {
			use.Types[fused.QPagedAttentionKeyCache+k] = c.codes
			p := pools[past]
			if p == nil {
				t, _ := past.Type()
				scale := c.edit.AddInput(g, past.Name+"_scale", dims(past, roles.Number(t.Dims[1])))
				p = &codedPool{codes: past, scale: scale}
				pools[past] = p
				c.coded = append(c.coded, p)
			}
			in[fused.QPagedAttentionKeyScale+k] = p.scale
			s.scale[k] = g.NewValue(n.Outputs[1+k].Name + "_scale")
			if s.present[k] != nil {
				p.scaleOut = s.scale[k]
			}
		}
		f, err := fused.Lookup(fused.QPagedAttentionName).Function(use)
		if err != nil {
			return fmt.Errorf("node %q: %w", n.Label(), err)
		}
		c.edit.Become(n, fused.QPagedAttentionName, use.Attributes...)
		c.edit.SetDomain(n, fused.Domain, f.Overload)
		c.edit.SetInputs(n, in...)
		c.edit.AddFunction(c.Model, f)
		for k, v := range s.scale {
			c.edit.TakeOutput(n, 3+k, v)
			if p := s.present[k]; p != nil && p.IsOutput() {
				t, _ := p.Type()
				c.edit.AddOutput(g, v)
				c.edit.SetType(v, dims(s.past[k], roles.Number(t.Dims[1])))
			}
		}
	}
	c.edit.DropDefinitions(c.Model, fused.PagedAttentionName)
	if c.codes == onnx.Float8E4M3FN {
		c.edit.RaiseIR(c.Model, float8IR)
	}
	if err := c.edit.Finish(); err != nil {
		return err
	}
	c.report.Type = c.codes.String()
	return nil
}

// float8IR is the first IR version with float8e4m3fn.
const float8IR = 9

// checkCodes runs the steps of the claim with codes. Beside each node it evaluates the node with pools of floats on the
// same queries, keys and values. Codes must be as near to keys and values as their rounding allows, and results as near
// as this allows: if no score moves by more than d, no weight of the softmax moves by more than a factor of exp(2d), so
// all weights together move by at most exp(2d) - 1.
func (c *Change) checkCodes() error {
	if c.codes == onnx.Undefined {
		return nil
	}
	if settled, err := c.prover.Settled("the rounding of keys and values", ""); settled || err != nil {
		return err
	}
	twins := map[*site]*twin{}
	for _, s := range c.sites {
		twins[s] = newTwin(c.Model.IRVersion, s)
	}
	worst := &Rounding{}
	at := 0
	err := c.eachStep(reference.Options{}, c.codedPools(), func(step int, env map[*onnx.Value]*reference.Tensor) error {
		for _, s := range c.sites {
			if err := twins[s].compare(c, s, env, worst); err != nil {
				return fmt.Errorf("node %q with pools of %s, step %d: %w", s.node.Label(), c.codes, step+1, err)
			}
		}
		outputs, err := c.rows(env, stepsTried[step])
		if err != nil {
			return err
		}
		for i, x := range outputs {
			if want := c.trial.want[at+i]; len(want.F) == len(x.F) {
				difference, scale := prove.Distance(want.F, x.F)
				worst.Outputs = max(worst.Outputs, prove.Relative(difference, scale))
			}
		}
		at += len(outputs)
		return nil
	})
	c.report.Rounding = worst
	return err
}

// A Rounding describes how pools of codes change numbers on the steps of the proof. Keys, Values and Results are
// fractions of the bounds that follow from the rounding.
type Rounding struct {
	Keys    float64 `json:"keys"`
	Values  float64 `json:"values"`
	Results float64 `json:"results"`
	Outputs float64 `json:"outputs"` // the greatest difference of the model's outputs, relative to their magnitude
}

// codedPools returns pools of junk.
func (c *Change) codedPools() map[*onnx.Value]*reference.Tensor {
	pools := map[*onnx.Value]*reference.Tensor{}
	for v, x := range c.floatPools() {
		if c.codes == onnx.Int8 {
			codes := make([]int64, len(x.F))
			for i := range codes {
				codes[i] = int64(i*7%255) - 127
			}
			x = reference.NewInts(c.codes, x.Shape, codes)
		} else {
			x = reference.NewFloats(c.codes, x.Shape, x.F)
		}
		pools[v] = x
	}
	for _, p := range c.coded {
		shape := []int{pools[p.codes].Shape[0], pools[p.codes].Shape[2]}
		pools[p.scale] = reference.NewFloats(onnx.Float, shape, slices.Repeat([]float64{math.NaN()}, shape[0]*shape[1]))
	}
	return pools
}

// twin is a site with pools of floats.
type twin struct {
	node  *onnx.Node
	run   prove.Computation
	pools [2]*reference.Tensor
}

func newTwin(ir int64, s *site) *twin {
	m := onnx.New(ir, s.use.Opset)
	op := fused.Lookup(fused.PagedAttentionName)
	var in, out []*onnx.Value
	for i := range s.use.Types {
		in = append(in, m.Graph.NewValue(op.Inputs[i].Name))
	}
	for _, o := range op.Outputs {
		out = append(out, m.Graph.NewValue(o.Name))
	}
	f, err := op.Function(s.use)
	if err != nil {
		panic(err) // attend made it
	}
	n := m.Graph.AddNode(op.Name, in, out, s.use.Attributes...)
	n.Domain, n.Overload = fused.Domain, f.Overload
	return &twin{node: n, run: prove.Op(s.use.Opset, n, f)}
}

// compare evaluates the twin on the inputs that the site had in a step, and compares.
func (t *twin) compare(c *Change, s *site, env map[*onnx.Value]*reference.Tensor, worst *Rounding) error {
	in := make([]*reference.Tensor, len(s.use.Types))
	for i, v := range s.in {
		if v != nil {
			if in[i] = env[v]; in[i] == nil {
				x, err := reference.FromONNX(v.Constant())
				if err != nil {
					return err
				}
				in[i] = x
			}
		}
	}
	for k := range s.past {
		if t.pools[k] == nil {
			x := env[s.past[k]]
			t.pools[k] = reference.NewFloats(s.use.Types[fused.PagedAttentionKeyCache+k], x.Shape,
				slices.Repeat([]float64{math.NaN()}, x.Len()))
		}
		in[fused.PagedAttentionKeyCache+k] = t.pools[k]
	}
	want, err := t.run(reference.Options{}, in)
	if err != nil {
		return err
	}
	copy(t.pools[:], want[1:])
	y := env[s.node.Outputs[0]]
	b := &bounds{c: c, attrs: fused.Read[fused.PagedAttention](s.use.Attributes), in: in, worst: worst}
	for k := range s.past {
		b.floats[k], b.codes[k], b.scales[k] = want[1+k], env[s.node.Outputs[1+k]], env[s.node.Outputs[3+k]]
	}
	return b.check(want[0], y)
}

// bounds compares one node with its twin.
type bounds struct {
	c      *Change
	attrs  fused.PagedAttention
	in     []*reference.Tensor
	floats [2]*reference.Tensor // keys and values, with their codes and scales
	codes  [2]*reference.Tensor
	scales [2]*reference.Tensor
	worst  *Rounding
}

// check returns an error if a key, a value or an element of want and got is farther from its twin than the bound.
func (b *bounds) check(want, got *reference.Tensor) error {
	cum, past := b.in[fused.PagedAttentionCumulativeSequenceLength].I, b.in[fused.PagedAttentionPastSeqlens].I
	heads, keyHeads := want.Shape[1], b.floats[0].Shape[2]
	q, width := b.in[fused.PagedAttentionQ], want.Shape[2]
	for s := range past {
		length := int(past[s] + cum[s+1] - cum[s])
		if cum[s+1] == cum[s] {
			continue
		}
		for h := range heads {
			g := h / (heads / keyHeads)
			if b.attrs.HeadOrder == "cyclic" {
				g = h % keyHeads
			}
			keys, _, err := b.rows(0, s, g, length, &b.worst.Keys)
			if err != nil {
				return err
			}
			values, most, err := b.rows(1, s, g, length, &b.worst.Values)
			if err != nil {
				return err
			}
			for t := cum[s]; t < cum[s+1]; t++ {
				sum, row := 0.0, (int(t)*heads+h)*q.Shape[2]
				for _, x := range q.F[row : row+q.Shape[2]] {
					sum += math.Abs(x)
				}
				moved := math.Abs(float64(b.attrs.Scale)) * sum * keys
				slack := prove.AllowedULPs(want.DataType, int64(length+q.Shape[2])) * prove.Spacing(want.DataType, most)
				bound := min(2, math.Expm1(2*moved))*most + values + slack
				at := (int(t)*heads + h) * width
				for i, x := range want.F[at : at+width] {
					d := math.Abs(got.F[at+i] - x)
					if !(d <= bound) {
						return fmt.Errorf("the result of token %d, head %d differs by %.3g, and the rounding allows "+
							"%.3g", t, h, d, bound)
					}
					b.worst.Results = max(b.worst.Results, d/bound)
				}
			}
		}
	}
	return nil
}

// rows compares the keys (k = 0) or values of a sequence and head with their codes. It returns the greatest error that
// their rounding allows, and their greatest magnitude.
func (b *bounds) rows(k, s, g, length int, worst *float64) (greatest, most float64, err error) {
	pool, codes := b.floats[k], b.codes[k].Floats()
	table, block, heads, width := b.in[fused.PagedAttentionBlockTable], pool.Shape[1], pool.Shape[2], pool.Shape[3]
	for j := range length {
		at := int(table.I[s*table.Shape[1]+j/block])
		scale := b.scales[k].F[at*heads+g]
		first := ((at*block+j%block)*heads + g) * width
		for i, x := range pool.F[first : first+width] {
			allowed := scale
			if b.c.codes == onnx.Float8E4M3FN {
				allowed = math.Abs(x)/16 + scale/512
			}
			d := math.Abs(codes[first+i]*scale - x)
			if !(d <= allowed) {
				return 0, 0, fmt.Errorf("%s %d of sequence %d is %.9g, and its code %.9g times %.3g",
					[]string{"key", "value"}[k], j, s, x, codes[first+i], scale)
			}
			*worst = max(*worst, d/allowed)
			greatest, most = max(greatest, allowed), max(most, math.Abs(x))
		}
	}
	return greatest, most, nil
}

// typeText describes the pools of codes.
func (r *Report) typeText() string {
	if r.Type == "" {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "; keys and values are rounded to %s with a scale for each block and head", r.Type)
	if r.Rounding != nil {
		fmt.Fprintf(&b, ", as requested: on the steps of the proof, attention differs by up to %.2g of the bound that "+
			"follows from the rounding, and outputs by %.2g of their greatest magnitude", r.Rounding.Results,
			r.Rounding.Outputs)
	}
	return b.String()
}
