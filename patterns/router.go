package patterns

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// routerForm finds the routers of mixtures of experts. What makes their scores, whether these or the logits are chosen among, what
// limits the choice to groups and what becomes of the chosen scores is read from the graph; the check compares the whole.
var routerForm = &goForm{name: "TopKRouter", op: "TopKRouter"}

func init() { routerForm.find = findRouters } // which names the form

// router is a routing as mojo.TopKRouter computes it; its fields are the op's inputs and attributes.
type router struct {
	*routing
	logits, bias *onnx.Value
	score, order string
	groups       groupLimit
	renormalize  bool
	epsilon      float64
	scale        float64
	sharpness    float64 // factor of the logits, which stands before the op
}

const (
	scoreFirst = "score_first"
	topKFirst  = "top_k_first"
)

func findRouters(f *finder) []*Match {
	var list []*Match
	for _, r := range routings(f.view) {
		if slices.ContainsFunc(r.cut(), func(v *onnx.Value) bool { return v != nil && f.written[v] }) {
			continue
		}
		m, at, why := f.router(r)
		if m == nil {
			if at == nil {
				at = r.topK
			}
			f.note(routerForm.name, r.topK, at, why)
			continue
		}
		list = append(list, m)
	}
	return list
}

// cut are the values that the experts read of the routing.
func (r *routing) cut() []*onnx.Value { return []*onnx.Value{r.ids, r.weights, r.dense} }

// router makes the match of a routing. Where it is none, why says what the op cannot say, and at which node.
//
// The op's weights are the last value that it can say on the way to the routing's: what is then done to weights of the
// chosen experts alone, such as a factor of each expert, stays in the graph.
func (f *finder) router(r *routing) (m *Match, at *onnx.Node, why string) {
	p := &routerReader{g: f.view, r: r}
	switch {
	case r.listed():
		return nil, r.topK, "experts that a table lists, and scores do not choose"
	case r.joined != nil:
		return nil, r.topK, "experts that are chosen one after the other, each by other scores"
	case r.dense != nil:
		found, at, why := p.read(r.dense, p.gated)
		if found == nil {
			return nil, at, why
		}
		return f.replaceRouter(found, r.dense), nil, ""
	case r.weights == nil:
		return nil, r.topK, "a choice of experts without weights"
	}
	for v := r.weights; v != nil; v = p.earlier(v) {
		found, node, reason := p.read(v, p.chosen)
		if found != nil {
			return f.replaceRouter(found, v), nil, ""
		}
		if why == "" {
			at, why = node, reason
		}
	}
	return nil, at, why
}

// replaceRouter builds the match that has the op compute ids and v, which are the weights, or the gates of all experts.
func (f *finder) replaceRouter(r *router, v *onnx.Value) *Match {
	g := f.view
	b := f.newReplacement(routerForm, r.topK)
	logits := b.input("logits", r.logits)
	rank, _ := g.Facts.Rank(r.logits)
	if n, _ := g.Facts.Rank(r.topK.Input(0)); n != rank { // chosen by rows of all tokens
		logits = b.node("Reshape", "logits_rows", []*onnx.Value{logits, b.integers("rows", -1, r.experts)})
		rank = 2
	}
	if r.sharpness != 1 {
		if g.Facts.DataType(r.logits) != onnx.Float {
			logits = b.node("Cast", "logits_32", []*onnx.Value{logits}, onnx.IntAttr("to", int64(onnx.Float)))
		}
		factor := b.b.constant("sharpness", onnx.NewFloat32s("", nil, []float32{float32(r.sharpness)}))
		logits = b.node("Mul", "logits_scaled", []*onnx.Value{logits, factor})
	}
	inputs := []*onnx.Value{logits}
	if r.bias != nil {
		bias := b.input("correction_bias", r.bias)
		if n, ok := g.Facts.Rank(r.bias); ok && n != 1 {
			bias = b.node("Reshape", "correction_bias_row", []*onnx.Value{bias, b.integers("row", -1)})
		}
		inputs = append(inputs, bias)
	}
	out := b.fused(inputs, []string{"weights", "ids"}, r.attributes()...)
	weights, ids := out[0], out[1]
	if v == r.dense {
		zeros := b.node("ConstantOfShape", "no_gates", []*onnx.Value{b.node("Shape", "gates_shape", []*onnx.Value{logits})})
		weights = b.node("ScatterElements", "gates", []*onnx.Value{zeros, ids, weights}, onnx.IntAttr("axis", -1))
	}
	if n, ok := g.Facts.Rank(r.ids); ok && n == rank-1 { // an ArgMax without the axis
		last := b.integers("last", -1)
		ids = b.node("Squeeze", "id", []*onnx.Value{ids, last})
		if m, ok := g.Facts.Rank(v); ok && m == n {
			weights = b.node("Squeeze", "weight", []*onnx.Value{weights, last})
		}
	}
	if t := g.Facts.DataType(v); t != onnx.Float {
		weights = b.node("Cast", "weights_cast", []*onnx.Value{weights}, onnx.IntAttr("to", int64(t)))
	}
	b.output(v, weights)
	b.output(r.ids, ids)
	return b.match(r.nodes(g, v))
}

func (r *router) attributes() []*onnx.Attribute {
	renormalize := int64(0)
	if r.renormalize {
		renormalize = 1
	}
	return []*onnx.Attribute{
		onnx.IntAttr("top_k", r.k),
		onnx.StringAttr("score", r.score),
		onnx.StringAttr("order", r.order),
		onnx.IntAttr("groups", r.groups.count),
		onnx.IntAttr("group_top_k", r.groups.topK),
		onnx.StringAttr("group_score", r.groups.score),
		onnx.FloatAttr("excluded_score", float32(r.groups.excluded)),
		onnx.IntAttr("renormalize", renormalize),
		onnx.FloatAttr("epsilon", float32(r.epsilon)),
		onnx.FloatAttr("scale", float32(r.scale)),
	}
}

// nodes are those between the op's inputs and the values that it gives.
func (r *router) nodes(g *match.View, v *onnx.Value) []*onnx.Node {
	var nodes []*onnx.Node
	seen := map[*onnx.Value]bool{r.logits: true, r.bias: true}
	queue := []*onnx.Value{v, r.ids}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		if v == nil || seen[v] || v.Graph != g.Graph || v.Producer == nil || v.Constant() != nil {
			continue
		}
		seen[v] = true
		if !r.cone[v] && isShape(g, v) {
			continue
		}
		nodes = append(nodes, v.Producer)
		queue = append(queue, v.Producer.Inputs...)
	}
	return nodes
}

// groupLimit is the part of a router that leaves only the experts of the best groups to be chosen.
type groupLimit struct {
	count, topK int64
	score       string  // "max" or "top2_sum"
	excluded    float64 // what other scores become: 0 or minus infinity
}

var noGroups = groupLimit{count: 1, topK: 1, score: "max", excluded: math.Inf(-1)}
