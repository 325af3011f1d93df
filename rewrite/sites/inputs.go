package sites

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// size is a number of tokens, with the shapes of the match's inputs.
type size struct {
	world  world
	shapes [][]int64
	tokens int64
}

// mostTokens bounds the tokens of a trial that tries to reach each expert.
const mostTokens = 64

// sizes returns the numbers of tokens that a site can be tried on, in ascending order.
func (k *Checker) sizes(c *Site, r *routing) ([]size, error) {
	var list []size
	add := func(s size, err error) error {
		if err == nil && !slices.ContainsFunc(list, func(o size) bool { return o.tokens == s.tokens }) {
			list = append(list, s)
		}
		return err
	}
	enough := min(max(5, (r.experts+r.chosen-1)/r.chosen), mostTokens)
	for _, tokens := range []int64{1, 2, 3, 5, enough} {
		if !c.slice.varying {
			add(k.resized(c, r, tokens))
		}
	}
	for n := range infer.Worlds {
		if c.slice.varying {
			add(k.sizeIn(c, r, world{k.tokenFacts(enough), n}))
		}
	}
	if err := add(k.sizeIn(c, r, world{k.run.Facts, 0})); err != nil && len(list) == 0 {
		return nil, err
	}
	slices.SortFunc(list, func(a, b size) int { return int(a.tokens - b.tokens) })
	return list, nil
}

// sizeOf returns the size for a number of tokens. It returns an error if the site requires another number.
func (k *Checker) sizeOf(c *Site, r *routing, tokens int64) (size, error) {
	if c.slice.varying {
		return k.sizeIn(c, r, world{k.tokenFacts(tokens), infer.Worlds - 1})
	}
	return k.resized(c, r, tokens)
}

// sizeIn returns the size of the site in a world.
func (k *Checker) sizeIn(c *Site, r *routing, w world) (size, error) {
	for _, v := range c.slice.known {
		if _, ok := w.facts.Known(v, w.n); !ok {
			return size{}, &prove.EvalError{Err: unknownElsewhere(v)}
		}
	}
	shapes, err := k.shapes(c, w)
	if err != nil {
		return size{}, err
	}
	return r.sized(w, shapes)
}

// sized counts the tokens.
func (r *routing) sized(w world, shapes [][]int64) (size, error) {
	s := size{world: w, shapes: shapes, tokens: r.tokens(shapes)}
	if s.tokens == 0 {
		return s, reason.New(reason.Unchecked, nil,
			"cannot be checked: the shapes of tokens, weights and numbers of experts do not fit each other")
	}
	return s, nil
}

// tokenFacts returns the facts for one sequence of 1, 2 and most tokens.
func (k *Checker) tokenFacts(most int64) *infer.Facts {
	f := k.sized[most]
	if f == nil {
		f = infer.AnalyzeTokens(k.run.Model, [infer.Worlds]int64{1, 2, most})
		k.sized[most] = f
	}
	return f
}

// errFixed reports that the graph fixes the number of tokens.
var errFixed = reason.New(reason.Unchecked, nil, "cannot be checked: the number of tokens is fixed")

// resized returns the size for a number of tokens if nothing in the graph fixes it.
func (k *Checker) resized(c *Site, r *routing, tokens int64) (size, error) {
	w := world{k.run.Facts, 0}
	shapes, err := k.shapes(c, w)
	if err != nil {
		return size{}, err
	}
	for i, what := range r.roles {
		width := int64(0)
		switch what {
		case fused.RoleTokens, fused.RoleBase, fused.RoleLogits, fused.RoleGates:
			width = shapes[i][max(0, len(shapes[i])-1)]
		case fused.RoleWeights, fused.RoleIDs:
			width = r.chosen
		default:
			continue
		}
		s := slices.Clone(shapes[i])
		axes := len(s) - 1 // number of axes that count tokens
		if len(s) == 0 || len(s) > 1 && s[axes] != width {
			return size{}, errFixed
		}
		at := max(axes-1, 0) // the last token axis that may be longer than 1
		for axis := range max(axes, 1) {
			_, fixed := k.run.Facts.Dim(c.Match.Inputs[i], axis)
			if fixed && s[axis] != 1 {
				return size{}, errFixed
			}
			if s[axis] = 1; !fixed {
				at = axis
			}
		}
		if s[at] = tokens; axes == 0 {
			s[0] *= width
		}
		shapes[i] = s
	}
	return r.sized(w, shapes)
}

// weightKind is a kind of weights of a token's experts.
type weightKind int

const (
	someWeights  weightKind = iota // positive
	oneWeight                      // 1 for one expert, 0 for the others
	noWeights                      // zeros
	smallWeights                   // small enough to be left out
	greatWeights                   // large enough to be clamped
)

// weightScale is the size of these kinds relative to someWeights.
var weightScale = map[weightKind]float64{someWeights: 1, smallWeights: 0x1p-10, greatWeights: 0x1p6}

// wide numbers reach the bends of activations and the limits of clamps.
var wide = prove.Kind{Name: "wide", Fill: prove.Scaled(func(onnx.DataType) float64 { return 8 })}

// expertKinds are the kinds of tokens besides normal ones. The squares of tiny ones vanish.
var expertKinds = []prove.Kind{prove.Small, prove.Large, prove.Huge, prove.Zeros, prove.OneHot, prove.Repeated, wide}

// holdsKind reports whether the type can hold the experts' results for tokens of the kind. Products of small numbers,
// and activations of large ones, are below the range of float16.
func holdsKind(k prove.Kind, t onnx.DataType) bool {
	return t != onnx.Float16 || !slices.Contains([]string{prove.Small.Name, prove.Large.Name, wide.Name}, k.Name)
}

// trialInputs returns the inputs of the match for one trial, and the chosen experts.
func (x *routed) trialInputs(t *trial, exact bool) (ts []*reference.Tensor, ids []int64, err error) {
	if ids = t.ids; ids == nil {
		ids = x.r.route(t.tokens, t.hits, t.start)
	}
	ts = make([]*reference.Tensor, len(x.c.Match.Inputs))
	for i, v := range x.c.Match.Inputs {
		typ, shape := x.c.Types[i], t.shapes[i]
		what := x.r.roles[i]
		if what == fused.RoleLogits && !x.r.logits {
			what = fused.NoRole
		}
		switch what {
		case fused.RoleLogits:
			ts[i] = reference.NewFloats(typ, ints(shape), x.r.choosing(t, typ, ids))
		case fused.RoleIDs:
			ts[i] = reference.NewInts(typ, ints(shape), ids)
		case fused.RoleWeights:
			ts[i] = reference.NewFloats(typ, ints(shape), weightsOf(t, typ, len(ids), x.r.chosen))
		case fused.RoleGates:
			gates := make([]float64, t.tokens*x.r.experts)
			for j, w := range weightsOf(t, typ, len(ids), x.r.chosen) {
				gates[int64(j)/x.r.chosen*x.r.experts+ids[j]] = w
			}
			ts[i] = reference.NewFloats(typ, ints(shape), gates)
		case fused.RoleMatrix, fused.RoleBias, fused.RoleCorrection:
			ts[i], err = x.parameter(v.Constant(), i, typ, shape, exact)
		default:
			if c := v.Constant(); c != nil && c.Size() <= maxConstantBytes && (!exact || !typ.IsFloat()) &&
				!x.Draws(c) {
				ts[i], err = reference.FromONNX(c)
			} else {
				ts[i], err = prove.MakeInput(t.kind, i, typ, shape)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return ts, ids, nil
}

// choosing returns logits for which a router chooses these experts, in any order.
func (r *routing) choosing(t *trial, typ onnx.DataType, ids []int64) []float64 {
	rnd := rand.New(rand.NewPCG(uint64(t.start)+1, uint64(t.tokens)))
	z := make([]float64, t.tokens*r.experts)
	for i := range z {
		z[i] = prove.RoundTo(typ, -3*rnd.Float64())
	}
	for i, e := range ids {
		token, place := int64(i)/r.chosen, int64(i)%r.chosen
		at := 0.5 + 2*rnd.Float64()
		if t.weights == oneWeight && token%r.chosen == place {
			at = 24
		}
		z[token*r.experts+e] = prove.RoundTo(typ, at)
	}
	return z
}

func ints(shape []int64) []int {
	s := make([]int, len(shape))
	for i, d := range shape {
		s[i] = int(d)
	}
	return s
}

func weightsOf(t *trial, typ onnx.DataType, n int, chosen int64) []float64 {
	r := rand.New(rand.NewPCG(uint64(t.start)+1, uint64(t.tokens)))
	w := make([]float64, n)
	for i := range w {
		switch token, place := int64(i)/chosen, int64(i)%chosen; {
		case weightScale[t.weights] > 0:
			w[i] = prove.RoundTo(typ, weightScale[t.weights]*(0.05+r.Float64()))
		case t.weights == oneWeight && token%chosen == place:
			w[i] = 1
		}
	}
	return w
}

// parameter returns the weights or a bias of the experts: random ones without rounding, because the rewrite has to hold
// for any, and the model's with rounding. Large ones are not held in memory: they are generated or read piece by piece.
func (x *routed) parameter(stored *onnx.Tensor, number int, typ onnx.DataType, shape []int64,
	exact bool) (*reference.Tensor, error) {
	drawn := x.Draws(stored)
	if stored != nil && !exact && !drawn {
		return reference.LazyFromONNX(stored)
	}
	if t := x.random[number]; t != nil {
		return t, nil
	}
	scale := 1.0
	if x.r.roles[number] == fused.RoleMatrix {
		scale = matrixScale(shape)
	}
	to := typ
	if stored != nil && !drawn {
		to = onnx.Double // only read without rounding
	}
	t, err := reference.NewLazy(typ, ints(shape), randomNumbers(number, scale, to))
	if err == nil && prove.Elements([][]int64{shape}) <= runElements*runElements {
		t, err = t.Dense()
	}
	x.random[number] = t
	return t, err
}

// matrixScale scales random matrices so that products have about the magnitude of their other factor.
func matrixScale(shape []int64) float64 {
	if n := len(shape); n >= 2 {
		return 1 / math.Sqrt(float64(max(shape[n-1], shape[n-2])))
	}
	return 1
}

const (
	// tableElements random numbers are repeated in runs of runElements, each from another position.
	tableElements = 1 << 16
	runElements   = 1 << 6
)

var randomTable = sync.OnceValue(func() []float64 {
	r := rand.New(rand.NewPCG(1, 0x6d6f6a6f))
	table := make([]float64, tableElements+runElements)
	for i := range table {
		table[i] = r.NormFloat64()
	}
	return table
})

// randomNumbers returns random numbers of a type by position, fast and anywhere in tensors of any size. Each run is a
// window into one table, at a pseudorandom position.
func randomNumbers(number int, scale float64, typ onnx.DataType) func(dst []float64, offset int) error {
	table := slices.Clone(randomTable())
	for i, v := range table {
		if table[i] = scale * v; typ != onnx.Double {
			table[i] = prove.RoundTo(typ, table[i])
		}
	}
	return func(dst []float64, offset int) error {
		for len(dst) > 0 {
			run, at := offset/runElements, offset%runElements
			h := uint64(run+1)*0x9e3779b97f4a7c15 + uint64(number+1)*0xd1342543de82ef95
			h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
			from := int(h >> 48) // less than tableElements
			n := min(len(dst), runElements-at)
			copy(dst, table[from+at:from+at+n])
			dst, offset = dst[n:], offset+n
		}
		return nil
	}
}
