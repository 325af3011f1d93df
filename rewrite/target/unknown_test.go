package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// whole returns the site with the shapes of the run.
func (s site) whole() site {
	if s.run == nil {
		for _, dims := range s.dims {
			run := make([]int, len(dims))
			for k, d := range dims {
				run[k] = int(d)
			}
			s.run = append(s.run, run)
		}
	}
	return s
}

// without returns the site without a known dimension of input i, or without its rank if axis is -1.
func (s site) without(i, axis int) site {
	s.dims = slices.Clone(s.dims)
	if axis < 0 {
		s.dims[i] = nil
		return s
	}
	s.dims[i] = slices.Clone(s.dims[i])
	s.dims[i][axis] = -1
	return s
}

// knownByTargets lists sites of TestUnknownShapes, targets, and what these have to know: X[1] is a dimension, X[?] the
// rank.
const knownByTargets = `norm: openvino: X[?]
norm: qnn: X[?] X[3]
sum: openvino: X[?]
sum: qnn: X[?] X[2]
first: openvino: X[?] cos[?] cos[3] sin[?] sin[3]
first: onnx ort qnn: X[?] X[3] cos[?] cos[0] cos[1] cos[2] cos[3] sin[?] sin[0] sin[1] sin[2] sin[3]
last: openvino: X[?] X[3] cos[?] cos[1] sin[?] sin[1]
last: onnx ort qnn: X[?] X[3] cos[?] cos[0] cos[1] sin[?] sin[0] sin[1]
wide: openvino: X[?] cos[?] cos[1] sin[?] sin[1]
wide: onnx ort qnn: X[?] X[3] cos[?] cos[0] cos[1] sin[?] sin[0] sin[1]
heads behind: openvino: X[?] cos[?] cos[3] sin[?] sin[3]
heads behind: ort: X[?] X[3] cos[?] cos[0] cos[1] cos[2] cos[3] sin[?] sin[0] sin[1] sin[2] sin[3]
heads behind: onnx qnn: X[?] X[2] X[3] cos[?] cos[0] cos[1] cos[2] cos[3] sin[?] sin[0] sin[1] sin[2] sin[3]
one row: onnx ort qnn: X[?] X[2] cos[?] cos[0] cos[1] sin[?] sin[0] sin[1]
one row: openvino: X[?] cos[?] cos[1] sin[?] sin[1]
causal: ascend: q[?] q[3] v[?] v[3]
causal: qnn: q[?] q[1] q[2] k[?] k[1] k[2] k[3] v[?] v[3] past_key[?] past_key[2]
heads first: ascend: q[?] q[3] v[?] v[3]
heads first: qnn: q[?] q[1] q[2] k[?] k[1] k[2] k[3] v[?] v[3]
added: openvino qnn: q[?] q[1] k[?] k[1] k[3] v[?] v[3]
sinks: qnn: q[?] q[0] q[1] q[2] q[3] k[?] k[1] k[2] k[3] v[?] v[3]
all: ascend: q[?] q[3] v[?] v[3]
all: openvino qnn: q[?] q[2] k[?] k[2] k[3] v[?] v[3]
delta: ort: q[?] q[2] k[?] k[2]
convolution: onnx ort: weight[?] weight[0] weight[2] past[?] past[2]
short: onnx: weight[?] weight[0] weight[2] past[?] past[2]
short: ort: weight[?] weight[2] past[?] past[2]
experts: qnn: X[?] X[1] ids[?] ids[1] gate_up[?] gate_up[0] down[?] down[1] down[2]
open experts: openvino qnn: X[?] X[1] ids[?] ids[1] gate_up[?] gate_up[0] down[?] down[1] down[2]`

// TestUnknownShapes leaves one dimension or rank of an input unknown at a time: a target writes nodes that compute the
// same, or refuses the op and says so.
func TestUnknownShapes(t *testing.T) {
	const E, H, I, k = 4, 6, 3, 2
	x, w := []int64{2, 3, 2, 8}, []int64{8}
	table := []int64{2, 1, 2, 2}
	delta := fused.LinearAttention{QHeads: 2, KHeads: 2, VHeads: 2, Scale: 0.25, L2Norm: true}
	mixed := site{op: "MoE", attrs: moeAttributes("silu", 1, 0, 0, "halves", "out_in", "out_in"),
		types: []onnx.DataType{f32, f32, onnx.Int64, f32, f32},
		dims:  [][]int64{{5, H}, {5, k}, {5, k}, {E, 2 * I, H}, {E, H, I}}}
	open := mixed
	open.dims = [][]int64{{-1, H}, {-1, k}, {-1, k}, {E, 2 * I, H}, {E, H, I}}
	open.run = mixed.whole().run
	sites := map[string]site{
		"norm":         normSite("RMSNorm", 1, []onnx.DataType{f32, f16}, x, w),
		"sum":          normSite("AddRMSNorm", 0, []onnx.DataType{f32, f32, f32}, x[1:], x[1:], w),
		"gate":         gluSite("silu", 1, 1.5, 1, f32),
		"bias":         biasSite("silu", 1, f32),
		"layer norm":   layerSite(x[1:], f32, f32, f32, f32, f32),
		"gated norm":   gatedSite(fused.GatedRMSNorm{}, f32),
		"first":        rotarySite(0, 4, "first", "halves", x, table),
		"last":         rotarySite(1, 4, "last", "halves", x, []int64{2, 2}),
		"wide":         rotarySite(1, 8, "first", "interleaved", x, []int64{2, 8}).repeating(true),
		"heads behind": rotarySite(0, 4, "first", "halves", x, []int64{2, 3, 1, 2}),
		"one row":      rotarySite(0, 8, "first", "halves", x[1:], []int64{2, 4}),
		"causal":       attend{layouts: "tttt", causal: 1, keys: 5, valid: true}.site().fixed(),
		"heads first":  attend{layouts: "hhht", causal: 1, before: 2}.site().fixed(),
		"added":        attend{layouts: "hhhh", keys: 5, bias: true, mask: []int{4, 3, 8}}.site().fixed(),
		"sinks":        attend{layouts: "tttt", causal: 1, window: 2, sink: true}.site().fixed(),
		"all":          attend{layouts: "tthh"}.site().fixed(),
		"delta":        linearSite(delta, f32, true, true, true),
		"convolution":  convSite("silu", f32, 5),
		"short":        convSite("none", f32, 3),
		"experts":      mixed,
		"open experts": open,
	}
	want, got := map[string]string{}, map[string]string{}
	for line := range strings.SplitSeq(knownByTargets, "\n") {
		parts := strings.Split(line, ": ")
		for name := range strings.FieldsSeq(parts[1]) {
			want[name+" "+parts[0]] = parts[2]
		}
	}
	for name, s := range sites {
		s = s.whole()
		op := fused.Lookup(s.op)
		for _, to := range All() {
			opset := max(to.Opset, 18)
			g, n, f := s.graph(t, opset)
			inputs := s.inputs(t)
			before := evaluate(t, g, opset, []*onnx.Function{f}, inputs)
			if _, err := s.write(to, n, opset); err != nil {
				continue
			}
			var needs []string
			for i, dims := range s.dims {
				for axis := -1; axis < len(dims); axis++ {
					if axis < 0 && dims == nil || axis >= 0 && dims[axis] < 0 {
						continue
					}
					place := strings.Replace(fmt.Sprintf("%s[%d]", op.Inputs[i].Name, axis), "-1", "?", 1)
					g, n, _ := s.graph(t, opset)
					text := g.Text()
					if _, err := s.without(i, axis).write(to, n, opset); err != nil {
						needs = append(needs, place)
						if g.Text() != text || !strings.Contains(err.Error(), "known") &&
							!strings.ContainsAny(err.Error(), "?-") {
							t.Errorf("%s, %s, without %s: %v", to.Name, name, place, err)
						}
						continue
					}
					var after []*reference.Tensor
					if slices.Contains(g.Nodes, n) { // the op itself stays
						after = evaluate(t, g, opset, []*onnx.Function{f}, inputs)
					} else {
						after = evaluate(t, g, opset, nil, inputs)
					}
					agree(t, s, fmt.Sprintf("%s, %s, without %s", to.Name, name, place), before, after)
				}
			}
			if needs != nil {
				got[to.Name+" "+name] = strings.Join(needs, " ")
			}
		}
	}
	for key, needs := range got {
		if want[key] != needs {
			t.Errorf("%q: %q, want %q", key, needs, want[key])
		}
	}
	for key, needs := range want {
		if got[key] == "" {
			t.Errorf("%q: nothing, want %q", key, needs)
		}
	}
}

// TestUnknownMixtures leaves one dimension or rank of a mixture unknown at a time.
func TestUnknownMixtures(t *testing.T) {
	for name, m := range map[string]mixture{"halves": usual(func(m *mixture) { m.biases = true }),
		"rank 3": usual(func(m *mixture) { m.rank, m.packing, m.layout = 3, "interleaved", "in_out" })} {
		g, calls, functions, inputs := m.graph(t, 17)
		before := evaluate(t, g, 17, functions, inputs)
		var needs []string
		for which, call := range calls {
			op := fused.Lookup(call.Op)
			for i, dims := range call.Site.Dims {
				for axis := -1; axis < len(dims); axis++ {
					place := strings.Replace(fmt.Sprintf("%s[%d]", op.Inputs[i].Name, axis), "-1", "?", 1)
					g, calls, _, _ := m.graph(t, 17)
					calls[which].Site.Dims = site{dims: call.Site.Dims}.without(i, axis).dims
					if _, err := ort.Write(calls[1]); err != nil {
						needs = append(needs, place)
						if !strings.Contains(err.Error(), "unknown") {
							t.Errorf("%s, without %s: %v", name, place, err)
						}
						continue
					}
					agree(t, site{op: "MoE"}, fmt.Sprint(name, " without ", place), before,
						evaluate(t, g, 17, functions, inputs))
				}
			}
		}
		if got := strings.Join(needs, " "); got != "X[?] gate_up[?] gate_up[0] gate_up[1] gate_up[2]" {
			t.Errorf("%s: MoE has to know %s", name, got)
		}
	}
}
