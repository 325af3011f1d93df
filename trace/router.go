package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Choice reports the choices of a router that differ between two models.
type Choice struct {
	Value  string `json:"value"` // the indices in the first model
	Block  string `json:"block"`
	Case   int    `json:"case"`
	Path   `json:"within,omitempty"`
	Tokens int64  `json:"tokens"`
	Flips  []Flip `json:"flips"`
}

// Flip is a token that went to other experts in the second model.
type Flip struct {
	Token   int64   `json:"token"` // the row of the indices
	Experts []int64 `json:"experts"`
	Other   []int64 `json:"other"`
	// Margin is the distance between the scores of the last chosen expert of the first model and the next expert, nil
	// if the scores are unknown.
	Margin *float64 `json:"margin,omitempty"`
	// Tie reports that the margin is within the tolerance of the model's type.
	Tie bool `json:"tie"`
}

// Near is a token that both models sent to the same experts in a tie. With other roundings, it may go elsewhere.
type Near struct {
	Value  string `json:"value"`
	Block  string `json:"block"`
	Case   int    `json:"case"`
	Path   `json:"within,omitempty"`
	Tokens int64   `json:"-"`
	Token  int64   `json:"token"`  // the row of the indices
	Expert int64   `json:"expert"` // the last chosen one
	Other  int64   `json:"other"`  // the next one
	Margin float64 `json:"margin"`
}

// String is a line for people.
func (n Near) String() string {
	return fmt.Sprintf("token %d: experts %d and %d, margin %.2g", n.Token, n.Expert, n.Other, n.Margin)
}

// Ties returns the number of tokens that chose other experts in a tie.
func (c *Choice) Ties() (n int) {
	for _, f := range c.Flips {
		if f.Tie {
			n++
		}
	}
	return n
}

// chooser returns the node whose choice a value holds, possibly moved: a TopK, an ArgMax or a mojo.TopKRouter.
func chooser(v *onnx.Value) *onnx.Node {
	for range 8 {
		n := v.Producer
		switch {
		case n == nil:
			return nil
		case n.Is("TopK") && v.Output == 1 && !v.IsOutput(), n.Is("ArgMax"),
			n.Domain == fused.Domain && n.OpType == fused.TopKRouterName && v.Output == 1:
			return n
		case !n.Is("Cast") && !n.Is("Identity") && !n.Is("Reshape"):
			return nil
		}
		v = n.Input(0)
	}
	return nil
}

// scoresOf lists the values needed to compute the scores for the indices v: the input of a TopK, or all inputs of a
// fused router.
func (c *Comparer) scoresOf(v *onnx.Value) []*onnx.Value {
	if !c.choices[v] {
		return nil
	}
	n := chooser(v)
	inputs := n.Inputs[:1]
	if n.Domain == fused.Domain {
		inputs = n.Inputs
	}
	return slices.DeleteFunc(slices.Clone(inputs), func(v *onnx.Value) bool { return v == nil || v.Constant() != nil })
}

// routersTogether moves the other outputs of the second model's router directly after its indices.
func (c *Comparer) routersTogether(pairs []Pair) []Pair {
	moved := map[*onnx.Value]bool{}
	var list []Pair
	for _, p := range pairs {
		if moved[p.A] {
			continue
		}
		if !c.choices[p.A] {
			if !c.besideChoice(p, pairs) {
				list = append(list, p)
			}
			continue
		}
		list, moved[p.A] = append(list, p), true
		for _, q := range pairs {
			if q.B.Producer == p.B.Producer && q.A != p.A {
				list, moved[q.A] = append(list, q), true
			}
		}
	}
	return list
}

// besideChoice reports whether a pair is moved behind a choice later in the list.
func (c *Comparer) besideChoice(p Pair, pairs []Pair) bool {
	if n := p.B.Producer; n != nil && len(n.Outputs) > 1 {
		return slices.ContainsFunc(pairs, func(q Pair) bool { return c.choices[q.A] && q.B.Producer == n })
	}
	return false
}

// together counts the pairs that belong to the router of the first pair.
func (c *Comparer) together(pairs []Pair) int {
	n := 1
	for n < len(pairs) && pairs[n].B.Producer == pairs[0].B.Producer {
		n++
	}
	return n
}

// route compares the choices of routers. If both chose the same experts in another order, the second model continues in
// the first model's order. With RouterTies, tokens that chose other experts in a tie continue with the first model's
// choice and its weights.
func (r *pass) route(pairs []Pair) error {
	p := pairs[0]
	want, got := r.a.Value(p.A), r.b.Value(p.B)
	if !r.choices[p.A] || !same(want, got) || want.Len() == 0 {
		return nil
	}
	experts, err := golden.Int64s(want)
	if err != nil {
		return err
	}
	others, err := golden.Int64s(got)
	if err != nil {
		return err
	}
	k := int64(1)
	if n := chooser(p.A); !n.Is("ArgMax") {
		k = want.Dims[len(want.Dims)-1]
	}
	choice := Choice{Value: p.A.Name, Block: r.blocks[p.A.Producer].String(), Case: r.number, Tokens: want.Len() / k}
	scores := r.scores(p.A, choice.Tokens)
	tied := map[int64]bool{}
	orders := map[int64][]int{}
	for t := range choice.Tokens {
		a, b := experts[t*k:(t+1)*k], others[t*k:(t+1)*k]
		if slices.Equal(a, b) {
			if scores != nil {
				r.near(&choice, t, scores[t], int(k))
			}
			continue
		}
		f := Flip{Token: t, Experts: sorted(a), Other: sorted(b)}
		if slices.Equal(f.Experts, f.Other) {
			for _, expert := range a {
				orders[t] = append(orders[t], slices.Index(b, expert))
			}
			continue
		}
		if scores != nil {
			margin, bound := r.margin(scores[t], int(k))
			f.Margin, f.Tie = &margin, margin <= bound
		}
		tied[t] = f.Tie && r.options.RouterTies
		choice.Flips = append(choice.Flips, f)
	}
	if len(choice.Flips) > 0 {
		r.Routers = append(r.Routers, choice)
	}
	for _, q := range pairs {
		if err := r.arrange(q, choice.Tokens, int(k), orders, tied); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two tensors exist and have the same type and shape.
func same(a, b *onnx.Tensor) bool {
	return a != nil && b != nil && a.DataType == b.DataType && slices.Equal(a.Dims, b.Dims)
}

// arrange puts the second model's router outputs into the first model's order, and replaces those of tied tokens by the
// first model's.
func (r *pass) arrange(p Pair, tokens int64, k int, orders map[int64][]int, tied map[int64]bool) error {
	want, got := r.a.Value(p.A), r.b.Value(p.B)
	if !same(want, got) || want.Len() != tokens*int64(k) || len(orders) == 0 && len(tied) == 0 {
		return nil
	}
	from, err := want.Bytes()
	if err != nil {
		return err
	}
	old, err := got.Bytes()
	if err != nil {
		return err
	}
	to := slices.Clone(old)
	width := int64(got.DataType.Bits() / 8)
	row := width * int64(k)
	for t, order := range orders {
		for i, at := range order {
			copy(to[t*row+int64(i)*width:][:width], old[t*row+int64(at)*width:])
		}
	}
	for t, tie := range tied {
		if tie {
			copy(to[t*row:][:row], from[t*row:])
		}
	}
	arranged, err := onnx.NewTensor(got.Name, got.DataType, got.Dims, to)
	if err != nil {
		return err
	}
	r.b.Set(p.B, arranged)
	return nil
}

func sorted(list []int64) []int64 {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// scores returns the scores that the first model chose by, per token, nil if they are unknown.
func (r *pass) scores(v *onnx.Value, tokens int64) [][]float64 {
	n := chooser(v)
	var all []float64
	switch {
	case n.Domain == fused.Domain:
		all = r.routerScores(n)
	case n.AttrInt("axis", map[bool]int64{true: -1, false: 0}[n.Is("TopK")]) == lastAxis(r.a.Value(n.Inputs[0]), n):
		if t := r.a.Value(n.Inputs[0]); t != nil {
			all, _ = golden.Float64s(t)
		}
	}
	if len(all) == 0 || int64(len(all))%tokens != 0 {
		return nil
	}
	return slices.Collect(slices.Chunk(all, len(all)/int(tokens)))
}

// lastAxis returns the last axis of a tensor in the notation of the node, negative or not.
func lastAxis(t *onnx.Tensor, n *onnx.Node) int64 {
	if t == nil || n.AttrInt("axis", -1) < 0 {
		return -1
	}
	return int64(len(t.Dims)) - 1
}

// routerScores evaluates the definition of a fused router up to the input of its last TopK.
func (r *pass) routerScores(n *onnx.Node) (scores []float64) {
	var ports []onnx.Port
	var inputs []*onnx.Tensor
	for _, v := range n.Inputs {
		if t := r.a.Value(v); v != nil && t != nil {
			ports = append(ports, onnx.Port{Value: v, Type: typeOf(t)})
			inputs = append(inputs, t)
		}
	}
	part, err := r.Comparer.a.Part([]*onnx.Node{n}, ports, n.Outputs)
	if err != nil {
		return nil
	}
	look := func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
		if n.Is("TopK") {
			if t, err := s.Value(n.Inputs[0]); err == nil {
				scores = t.F
			}
		}
		return nil, nil
	}
	e, err := reference.New(part, reference.Options{Override: look})
	if err == nil {
		_, err = e.RunTensors(inputs)
	}
	if err != nil {
		return nil
	}
	return scores
}

// margin returns the distance of the k-th score from the next one, and the bound up to which it is a tie: 1e-4 of the
// greatest score, or four units in the last place in half precision.
func (r *pass) margin(scores []float64, k int) (margin, bound float64) {
	list := slices.Clone(scores)
	slices.SortFunc(list, func(a, b float64) int { return cmp.Compare(b, a) })
	if k >= len(list) {
		return math.Inf(1), 0
	}
	unit := 1e-4
	switch r.half {
	case onnx.BFloat16:
		unit = 4.0 / (1 << 7)
	case onnx.Float16:
		unit = 4.0 / (1 << 10)
	}
	return list[k-1] - list[k], unit * math.Abs(list[0])
}

// near adds a token whose choice is the same in both models to Near, if the choice is a tie.
func (r *pass) near(c *Choice, token int64, scores []float64, k int) {
	margin, bound := r.margin(scores, k)
	if !(margin <= bound) || math.IsInf(margin, 0) {
		return
	}
	order := make([]int64, len(scores))
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortFunc(order, func(a, b int64) int { return cmp.Compare(scores[b], scores[a]) })
	r.Near = append(r.Near, Near{Value: c.Value, Block: c.Block, Case: c.Case, Tokens: c.Tokens, Token: token,
		Expert: order[k-1], Other: order[k], Margin: margin})
}

// ties counts the tokens of all routers that chose other experts in a tie.
func (c *Comparison) ties() (n int) {
	for i := range c.Routers {
		n += c.Routers[i].Ties()
	}
	return n
}

// String returns, for example, "token 3: experts [1 4], the other [1 5], margin 1.2e-05 (a tie)".
func (f Flip) String() string {
	text := fmt.Sprintf("token %d: experts %v, the other %v", f.Token, f.Experts, f.Other)
	if f.Margin != nil {
		text += fmt.Sprintf(", margin %.2g", *f.Margin)
	}
	if f.Tie {
		text += " (a tie)"
	}
	return text
}
