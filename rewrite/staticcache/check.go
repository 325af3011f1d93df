package staticcache

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A model with buffers computes the same as before if attention does, given the same length, and if all lengths read
// are the same as before. checkSites checks the first condition before any change, and checkLengths the second one
// afterwards.

// checkSites proves that attention on a buffer with junk in its unused rows computes the same as attention on a cache.
func (c *cacheChange) checkSites() error {
	p := c.prover
	for _, s := range c.sites {
		claim, err := c.claim(s)
		if err == nil {
			err = p.Prove(claim)
		}
		if err != nil {
			return fmt.Errorf("node %q: %w", s.node.Label(), err)
		}
	}
	if r := p.Checked(); r != nil {
		c.checked = &prove.CheckReport{MaxRel: r.MaxRel, Cases: r.Cases, Kernel: r.Kernel, KernelTold: r.KernelTold}
	}
	return nil
}

// knownSize returns a size that is one number in all worlds, -1 for another one. Such a size need not be proven to try
// attention with it.
func (c *cacheChange) knownSize(v *onnx.Value, axis int) int64 {
	size := int64(-1)
	for w := range infer.Worlds {
		shape, ok := c.patched.Shape(v, w)
		if !ok || axis >= len(shape) || w > 0 && shape[axis] != size {
			return -1
		}
		size = shape[axis]
	}
	return size
}

// claim claims that attention on a buffer returns the same as attention at a site, writes the new rows and keeps the
// others, and that its kernel does so too.
func (c *cacheChange) claim(s *cacheSite) (*prove.Claim, error) {
	site := pass.FusedSite(c.Model, c.patched, s.node)
	for i, v := range s.node.Inputs {
		for axis, d := range site.Dims[i] {
			if d < 0 {
				site.Dims[i][axis] = c.knownSize(v, axis)
			}
		}
	}
	f, err := fused.Lookup(s.op.Name).Function(c.inPlace(s))
	if err != nil {
		return nil, err
	}
	grown := *s.node
	grown.Outputs = s.writing().Outputs
	onBuffer := prove.Op(site.Opset, &onnx.Node{Domain: fused.Domain, OpType: s.op.Name, Overload: f.Overload,
		Attributes: s.node.Attributes, Outputs: grown.Outputs}, f)
	onCache := prove.Op(site.Opset, &grown, c.Model.Functions...)
	tried := map[*reference.Tensor]prove.Lengths{} // by queries
	buffers := func(in []*reference.Tensor) (prove.Lengths, []*reference.Tensor) {
		t := tried[in[0]]
		return t, inBuffers(t, s.op, in)
	}
	return &prove.Claim{
		What: "attention on a buffer", Typed: prove.First(prove.SumOf(1)),
		Outputs: fused.Lookup(s.op.Name).OutputNames(),
		Key:     fmt.Sprint(s.op.Name, site.Types, site.Dims, onnx.AttributesKey(site.Attributes)),
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
		Also: func(trial prove.Trial, want, _ []*reference.Tensor, r *prove.CheckReport) error {
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
				in, err := t.Inputs(s.op, s.node, site, i)
				if err == nil {
					tried[in[0]] = t
				}
				name := fmt.Sprintf("%d tokens in a buffer of %d and %d new ones, %s", t.Past, t.Room, t.Added,
					t.Padding.Name)
				if !yield(prove.Trial{Name: name, Inputs: in}, err) {
					return
				}
			}
		},
	}, nil
}

// trials returns the lengths of the first two worlds, steps of one token, empty caches, and full ones.
func (c *cacheChange) trials() []prove.Lengths {
	var list []prove.Lengths
	add := func(batch, past, added int64) {
		n := past + added
		for i, room := range []int64{n, n + 3} {
			p := prove.Paddings[(len(list)+i)%len(prove.Paddings)]
			list = append(list, prove.Lengths{Batch: batch, Past: past, Added: added, Room: room, Padding: p,
				Junk: []float64{math.NaN(), 7}[len(list)/2%2]})
		}
	}
	for w := range prove.CheckedWorlds {
		batch := c.patched.Size(c.sites[0].past[0], w, 0)
		add(batch, c.past[w], c.added[w])
		add(batch, 0, c.added[w])
		if c.added[0] != c.added[1] {
			add(batch, c.past[w], 1)
		}
	}
	return list
}

// expectedRows returns the buffers among the inputs with the rows that attention wrote.
func expectedRows(op *fused.CachedOp, in, want []*reference.Tensor) (rows []*reference.Tensor) {
	for k, past := range op.Pasts {
		buffer := in[past]
		expected := reference.NewFloats(buffer.DataType, buffer.Shape, slices.Clone(buffer.F))
		prove.CopyRows(expected, want[1+k])
		rows = append(rows, expected)
	}
	return rows
}

// checkKernel compares the kernel, if there is one, with the definition's result on a cache.
func (c *cacheChange) checkKernel(s *cacheSite, in, want []*reference.Tensor, r *prove.CheckReport) error {
	op := fused.Lookup(s.op.Name)
	result := make([]*reference.Tensor, len(want)) // without the rows
	result[0] = want[0]
	got, err := c.CompareKernel(&prove.KernelRun{Op: op, Site: c.inPlace(s), In: in, Want: result}, r)
	switch {
	case got != nil && err != nil:
		return fmt.Errorf("it differs from the op's definition: %w", err)
	case got == nil:
		return err
	}
	rows := prove.Comparison{Names: op.OutputNames()[1:], By: "the kernel", Bound: prove.BitForBit, Strict: true,
		Says: true}
	return rows.Compare(want[1:], got[1:])
}

// checkLengths evaluates the lengths that are read now, and compares them with the previous ones.
func (c *cacheChange) checkLengths() error {
	if c.options.RowLengths { // lengths only determine positions
		return nil
	}
	if assumed, _ := c.prover.Settled("the lengths that are read of caches", ""); assumed {
		return nil
	}
	e := reference.NewForOpset(c.Model.Opset(""), nil, reference.Options{})
	for w := range prove.CheckedWorlds {
		env := map[*onnx.Value]*reference.Tensor{}
		give := func(v *onnx.Value, shape []int64) {
			dims := make([]int, len(shape))
			for axis, d := range shape {
				dims[axis] = int(d)
			}
			env[v] = reference.NewInts(onnx.Int64, dims, make([]int64, match.Elements(dims))) // only its shape is read
		}
		given := append(slices.Clone(c.masks), c.fresh)
		if c.options.PastLength {
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
				continue // the Shape no longer exists
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
			return fmt.Errorf("%q is %v with %d tokens in the cache", c.length.Name, got, c.past[w])
		}
		for _, r := range c.readers {
			want, _ := c.facts.Shape(r.shape.Inputs[0], w)
			if got := env[r.corrected].I; !slices.Equal(got, want[r.from:r.to]) {
				return fmt.Errorf("%q is %v instead of %v", r.corrected.Name, got, want[r.from:r.to])
			}
		}
	}
	return nil
}

// inBuffers returns the inputs with the caches in buffers and with the length.
func inBuffers(t prove.Lengths, op *fused.CachedOp, in []*reference.Tensor) []*reference.Tensor {
	out := make([]*reference.Tensor, max(len(in), op.Length+1))
	copy(out, in)
	for _, i := range op.Pasts {
		past := in[i]
		shape := slices.Clone(past.Shape)
		shape[prove.CacheAxis] = int(t.Room)
		buffer := reference.NewFloats(past.DataType, shape, slices.Repeat([]float64{t.Junk}, match.Elements(shape)))
		prove.CopyRows(buffer, past)
		out[i] = buffer
	}
	out[op.Length] = reference.NewInts(onnx.Int64, []int{1}, []int64{t.Past})
	return out
}
