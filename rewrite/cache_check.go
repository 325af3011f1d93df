package rewrite

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A model with buffers computes what it did before if attention does, given the same length, and if all that was read
// of lengths before is the same number. checkSites looks at the one before anything is changed, checkLengths at the
// other one behind it.

// checkedWorlds are the worlds that are small enough.
const checkedWorlds = 2

// cacheTrial is one set of lengths of attention on a buffer.
type cacheTrial struct {
	batch, past, added, room int64
	padding                  padding
	junk                     float64 // in the rows that hold no tokens
}

// checkSites proves that attention on a buffer whose unused rows hold junk computes what attention on a cache does.
func (c *cacheChange) checkSites() error {
	p := c.newProver()
	for _, s := range c.sites {
		claim, err := c.claim(s, &p.Report)
		if err == nil {
			err = p.Prove(claim)
		}
		if err != nil {
			return fmt.Errorf("node %q: %w", nodeName(s.node), err)
		}
	}
	if r := &p.Report; !p.Off {
		c.checked = &CheckReport{MaxRel: r.MaxRel, Cases: r.Cases, Kernel: r.Kernel, KernelTold: r.KernelTold}
	}
	return nil
}

// claim says that attention on a buffer returns the same as attention at a site, writes the new rows and leaves the
// others, and that its kernel does too. r gets the kernel's figures.
func (c *cacheChange) claim(s *cacheSite, r *CheckReport) (*prove.Claim, error) {
	site := FusedSite(c.model, c.patched, s.node)
	f, err := fused.Lookup(s.op.name).Function(c.inPlace(s))
	if err != nil {
		return nil, err
	}
	grown := *s.node
	grown.Outputs = s.writing().Outputs
	onBuffer := prove.Op(site.Opset, &onnx.Node{Domain: fused.Domain, OpType: s.op.name, Overload: f.Overload,
		Attributes: s.node.Attributes, Outputs: grown.Outputs}, f)
	onCache := prove.Op(site.Opset, &grown, c.model.Functions...)
	tried := map[*reference.Tensor]cacheTrial{} // by queries
	buffers := func(in []*reference.Tensor) (cacheTrial, []*reference.Tensor) {
		t := tried[in[0]]
		return t, t.onBuffer(s.op, in)
	}
	return &prove.Claim{
		What: "attention on a buffer", Typed: prove.First(prove.SumOf(1)),
		Outputs: fused.Lookup(s.op.name).OutputNames(),
		Key:     fmt.Sprint(s.op.name, site.Types, site.Dims, attributesKey(site.Attributes)),
		Before: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			want, err := onCache(o, in)
			if err != nil {
				return nil, err
			}
			_, in = buffers(in)
			return append(want[:1:1], expectedRows(s.op, in, want)...), nil
		},
		After: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			_, in = buffers(in)
			return onBuffer(o, in)
		},
		Also: func(trial prove.Trial, want, _ []*reference.Tensor) error {
			t, in := buffers(trial.Inputs)
			if err := c.checkKernel(s, in, want, r); err != nil {
				return fmt.Errorf("its kernel: %w", err)
			}
			if err := c.checkUnequal(s, func(in []*reference.Tensor) ([]*reference.Tensor, error) {
				return onBuffer(reference.Options{}, in)
			}, t, in, r); err != nil {
				return fmt.Errorf("sequences of different lengths: %w", err)
			}
			return nil
		},
		Trials: func(yield func(prove.Trial, error) bool) {
			for i, t := range c.trials() {
				in, err := t.inputs(s.op, s.node, site, i)
				if err == nil {
					tried[in[0]] = t
				}
				name := fmt.Sprintf("%d tokens in a buffer of %d and %d new ones, %s", t.past, t.room, t.added,
					t.padding.name)
				if !yield(prove.Trial{Name: name, Inputs: in}, err) {
					return
				}
			}
		},
	}, nil
}

// trials are the lengths of the first two worlds, steps of one token, empty caches, and full ones.
func (c *cacheChange) trials() []cacheTrial {
	var list []cacheTrial
	add := func(batch, past, added int64) {
		n := past + added
		for i, room := range []int64{n, n + 3} {
			p := paddings[(len(list)+i)%len(paddings)]
			list = append(list, cacheTrial{batch, past, added, room, p, []float64{math.NaN(), 7}[len(list)/2%2]})
		}
	}
	for w := range checkedWorlds {
		batch := c.patched.Size(c.sites[0].past[0], w, 0)
		add(batch, c.past[w], c.added[w])
		add(batch, 0, c.added[w])
		if c.added[0] != c.added[1] {
			add(batch, c.past[w], 1)
		}
	}
	return list
}

// inputs makes the inputs of a node of attention with the cache as it was. The heads and channels are the site's, the
// tokens and sequences the trial's.
func (t *cacheTrial) inputs(op *cachedOp, n *onnx.Node, site fused.Site, seed int) ([]*reference.Tensor, error) {
	total, room := t.past+t.added, t.past
	if op.length < len(n.Inputs) && n.Inputs[op.length] != nil {
		room = total
	}
	in := make([]*reference.Tensor, len(n.Inputs))
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		shape := slices.Clone(site.Dims[i])
		var full []int64 // -1 for what the site says
		switch name := op.input(i); name {
		case "q", "k", "v":
			full = []int64{t.batch, -1, t.added, -1}
			if site.Attr(name+"_layout").String == "bsnh" {
				full[1], full[2] = full[2], full[1]
			}
		case "c":
			full = []int64{t.batch, t.added, -1}
		case "k_pe":
			full = []int64{t.batch, 1, t.added, -1}
		case "past_key", "past_value", "past":
			full = []int64{t.batch, -1, room, -1}
		case "past_length":
			in[i] = reference.NewInts(onnx.Int64, []int{1}, []int64{t.past})
			continue
		case "key_valid":
			full = []int64{t.batch, total}
		case "bias":
			full = []int64{t.batch, -1, t.added, total}
			full = full[max(0, len(full)-len(shape)):]
		case "sink":
			full = []int64{-1}
			if len(shape) == 0 { // made by a new node
				shape = []int64{t.heads(site)}
			}
		case "w":
			full = []int64{-1, -1}
		}
		for axis, d := range full {
			if d >= 0 && axis < len(shape) && (shape[axis] != 1 || i != fused.AttentionBias && i != op.valid) {
				shape[axis] = d
			}
		}
		if len(shape) != len(full) || slices.Contains(shape, -1) {
			return nil, fmt.Errorf("cannot be checked: the shape of %q is not known", v.Name)
		}
		var err error
		if i == op.valid {
			in[i] = t.padding.tensor(site.Types[i], shape)
		} else if in[i], err = prove.MakeInput(prove.Normal, len(in)*seed+i, site.Types[i], shape); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// heads returns the number of query heads of attention, or -1 if it is unknown.
func (t *cacheTrial) heads(site fused.Site) int64 {
	q, axis := site.Dims[fused.AttentionQ], 1
	if site.Attr("q_layout").String == "bsnh" {
		axis = 2
	}
	if len(q) != 4 {
		return -1
	}
	return q[axis]
}

// onBuffer returns the inputs with the caches in buffers, and with the length.
func (t *cacheTrial) onBuffer(op *cachedOp, in []*reference.Tensor) []*reference.Tensor {
	out := make([]*reference.Tensor, max(len(in), op.length+1))
	copy(out, in)
	for _, i := range op.pasts {
		past := in[i]
		shape := slices.Clone(past.Shape)
		shape[cacheAxis] = int(t.room)
		buffer := reference.NewFloats(past.DataType, shape, slices.Repeat([]float64{t.junk}, match.Elements(shape)))
		copyRows(buffer, past)
		out[i] = buffer
	}
	out[op.length] = reference.NewInts(onnx.Int64, []int{1}, []int64{t.past})
	return out
}

// copyRows copies the rows of all heads to where they stand in a greater cache.
func copyRows(to, from *reference.Tensor) {
	width := to.Shape[3]
	a, b := to.Shape[cacheAxis]*width, from.Shape[cacheAxis]*width
	for h := range to.Shape[0] * to.Shape[1] {
		copy(to.F[h*a:(h+1)*a], from.F[h*b:(h+1)*b])
	}
}

// expectedRows returns the buffers among the inputs in, with the rows that attention wrote.
func expectedRows(op *cachedOp, in, want []*reference.Tensor) (rows []*reference.Tensor) {
	for k, past := range op.pasts {
		buffer := in[past]
		expected := reference.NewFloats(buffer.DataType, buffer.Shape, slices.Clone(buffer.F))
		copyRows(expected, want[1+k])
		rows = append(rows, expected)
	}
	return rows
}

// checkKernel compares the kernel, where there is one, with what the definition gave on a cache.
func (c *cacheChange) checkKernel(s *cacheSite, in, want []*reference.Tensor, r *CheckReport) error {
	k := c.byOp[s.op.name]
	if c.config.kernelCheck == nil || k == nil || isDefinition(k) {
		return nil
	}
	op := fused.Lookup(s.op.name)
	got, err := c.config.runKernel(op, s.node.Attributes, in)
	if err != nil {
		return err
	}
	result := make([]*reference.Tensor, len(want)) // without the rows
	result[0] = want[0]
	run := &prove.KernelRun{Op: op, Site: c.inPlace(s), In: in, Want: result}
	figures, err := run.Compare(valueNames(s.node.Outputs), got)
	r.KernelRan(figures)
	if err != nil {
		return err
	}
	return new(CheckReport).Compare(op.OutputNames()[1:], want[1:], got[1:], prove.BitForBit, false)
}

// checkLengths evaluates what is read of lengths now, and compares it with what was read before.
func (c *cacheChange) checkLengths() error {
	if c.config.verify == VerifyOff || c.config.rowLengths { // nothing is computed of lengths but positions
		return nil
	}
	e := reference.NewForOpset(c.model.Opset(""), nil, reference.Options{})
	for w := range checkedWorlds {
		env := map[*onnx.Value]*reference.Tensor{}
		give := func(v *onnx.Value, shape []int64) {
			dims := make([]int, len(shape))
			for axis, d := range shape {
				dims[axis] = int(d)
			}
			env[v] = reference.NewInts(onnx.Int64, dims, make([]int64, match.Elements(dims))) // its shape alone is read
		}
		given := append(slices.Clone(c.masks), c.fresh)
		if c.config.pastLength {
			env[c.length] = reference.NewInts(onnx.Int64, []int{1}, []int64{c.past[w]})
		} else {
			given = append(given, c.total)
		}
		for _, s := range given {
			if shape, ok := c.facts.Shape(s.input, w); ok {
				give(s.input, shape)
			} else if s.input != nil {
				return fmt.Errorf("cannot be checked: the shape of input %q is not known", s.input.Name)
			}
		}
		nodes, want := slices.Clone(c.nodes), []*onnx.Value{c.length}
		for _, r := range c.readers {
			if r.corrected == c.length || r.corrected == c.all {
				continue // the Shape is gone
			}
			shape, _ := c.facts.Shape(r.shape.Inputs[0], w)
			shape = slices.Clone(shape)
			shape[r.axis] = c.past[w] + c.added[w] + 3
			give(r.shape.Inputs[0], shape)
			nodes, want = slices.Insert(nodes, 0, r.shape), append(want, r.corrected)
		}
		if c.all != nil {
			want = append(want, c.all)
		}
		if _, err := e.EvalFor(nodes, env, want); err != nil {
			return &prove.EvalError{Err: err}
		}
		if got := env[c.length].I; !slices.Equal(got, []int64{c.past[w]}) {
			return fmt.Errorf("%q is %v where %d tokens are in the cache", c.length.Name, got, c.past[w])
		}
		for _, r := range c.readers {
			want, _ := c.facts.Shape(r.shape.Inputs[0], w)
			if got := env[r.corrected].I; !slices.Equal(got, want[r.from:r.to]) {
				return fmt.Errorf("%q is %v where it was %v", r.corrected.Name, got, want[r.from:r.to])
			}
		}
	}
	return nil
}
