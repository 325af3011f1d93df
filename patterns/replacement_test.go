package patterns

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// target matches Neg(Abs(x)) for a float16 x of shape [batch, seq, 8], with a pattern of this target, at this opset.
func target(t *testing.T, opset int64, text string) *Match {
	t.Helper()
	s := NewSet()
	if err := s.Add("f.pat", text); err != nil {
		t.Fatal(err)
	}
	m := onnx.New(8, opset)
	dims := []onnx.Dim{{Value: -1, Param: "batch"}, {Value: -1, Param: "seq"}, {Value: 8}}
	x := m.Graph.AddInput("in", onnx.Type{DataType: onnx.Float16, HasShape: true, Dims: dims})
	g := &onnxtest.Builder{Model: m, Graph: m.Graph}
	m.Graph.AddOutput(g.Op("LeakyRelu", g.Op("Abs", x), onnx.FloatAttr("alpha", 0.25)))
	matches, _ := s.Find(m.Graph, infer.Analyze(m))
	if len(matches) != 1 {
		t.Fatalf("%d matches", len(matches))
	}
	return matches[0]
}

// ofTarget returns a pattern with the given target as its right side.
func ofTarget(right string) string {
	return "pattern P(x) -> y {\n a = Abs(x)\n y = LeakyRelu<alpha=$slope>(a)\n} => " + right
}

// compact writes each node of a graph in one line, without the parts that are always the same.
func compact(g *onnx.Graph) string {
	text := regexp.MustCompile(`(?s)\{(.*)\}`).FindStringSubmatch(g.Text())
	if text == nil {
		return g.Text()
	}
	lines := strings.FieldsFunc(text[1], func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

func TestTargets(t *testing.T) {
	tests := []struct {
		name   string
		opset  int64
		target string
		want   string
	}{
		{"names", 20, "mojo.GLU(a, x)", "y = mojo.GLU(a, x)"},
		{"one value twice", 20, "mojo.GLU(a, a)", "y = mojo.GLU(a, a)"},
		{"nested", 20, "Reshape(mojo.F(Relu(x)), [0, 0, -1])",
			"relu = Relu(x); f = mojo.F(relu); ints = Constant<value=int64[3] {0, 0, -1}>(); y = Reshape(f, ints)"},
		{"axes as input", 20, "Unsqueeze(x; axes=[1])",
			"axes = Constant<value=int64[1] {1}>(); y = Unsqueeze(x, axes)"},
		{"axes as attribute", 12, "Unsqueeze(x; axes=[1])", "y = Unsqueeze<axes=[1]>(x)"},
		{"axes given as input", 17, "ReduceMean(x, [-1]; keepdims=0)", "y = ReduceMean<keepdims=0, axes=[-1]>(x)"},
		{"sums change earlier", 17, "ReduceSum(x; axes=[-1])",
			"axes = Constant<value=int64[1] {-1}>(); y = ReduceSum(x, axes)"},
		{"means change later", 18, "ReduceMean(x; axes=[-1])",
			"axes = Constant<value=int64[1] {-1}>(); y = ReduceMean(x, axes)"},
		{"number of the type beside it", 20, "Mul(2, x)",
			"number = Constant<value=float16[] {2.0}>(); y = Mul(number, x)"},
		{"number beside a call", 14, "Mul(Relu(x), 0.5)",
			"relu = Relu(x); number = Constant<value=float16[] {0.5}>(); y = Mul(relu, number)"},
		{"captured number", 20, "Mul(x, slope)", "number = Constant<value=float16[] {0.25}>(); y = Mul(x, number)"},
		{"index", 20, "Gather(x, 0; axis=1)", "number = Constant<value=int64[] {0}>(); y = Gather<axis=1>(x, number)"},
		{"type", 20, `Cast(x; to=type(a))`, "y = Cast<to=10>(x)"},
		{"omitted input", 20, "Clip(x, _, 6)", "number = Constant<value=float16[] {6.0}>(); y = Clip(x, \"\", number)"},
		{"attributes by name", 20, "com.microsoft.QuickGelu(x; alpha=slope)",
			"y = com.microsoft.QuickGelu<alpha=0.25>(x)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := target(t, tt.opset, ofTarget(tt.target))
			if m.Problem != nil {
				t.Fatal(m.Problem)
			}
			if got := compact(m.Replacement); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if len(m.Replacement.Inputs) != len(m.Inputs) || len(m.Replacement.Outputs) != 1 {
				t.Errorf("%d inputs for %d values", len(m.Replacement.Inputs), len(m.Inputs))
			}
		})
	}
}

func TestMainCallOfATarget(t *testing.T) {
	for right, want := range map[string]string{
		"Reshape(mojo.F(com.microsoft.G(x)), [0, 0, -1])": "mojo.F",
		"Reshape(Relu(x), [0, 0, -1])":                    ".Reshape",
	} {
		if m := target(t, 20, ofTarget(right)); m.Domain+"."+m.Op != want {
			t.Errorf("%s: main op %s.%s, want %s", right, m.Domain, m.Op, want)
		}
	}
	if m := target(t, 20, ofTarget("Reshape(mojo.F(x; alpha=slope), [0])")); len(m.Attributes) != 1 ||
		m.Attributes[0].Float != 0.25 {
		t.Errorf("attributes %v", m.Attributes)
	}
}

func TestTargetsThatTheOpsetLacks(t *testing.T) {
	for right, want := range map[string]string{
		"LayerNormalization(x, x)":    "LayerNormalization is a standard op since opset 17, but the model imports 14",
		"ReduceMean(x, Shape(x))":     "ReduceMean takes axes as an input since opset 18; the model imports 14",
		"BitwiseNot(LeakyRelu(x, 0))": "BitwiseNot is a standard op since opset 18",
	} {
		m := target(t, 14, ofTarget(right))
		if m.Problem == nil || !strings.Contains(m.Problem.Error(), want) || m.Replacement != nil {
			t.Errorf("%s: %v, want %q", right, m.Problem, want)
		}
	}
}

func TestFunctions(t *testing.T) {
	text := "function my.F(v) -> w <slope, axis> {\n l = LeakyRelu(v; alpha=slope)\n w = Softmax(Mul(slope, l); " +
		"axis=axis)\n}\n" +
		ofTarget("my.F(a; slope=slope, axis=-1)")
	for opset, want := range map[int64]string{
		20: "l = LeakyRelu<alpha=@slope>(v); slope = Constant<value_float=@slope>(); slope_like = CastLike(slope, " +
			"l); " +
			"mul = Mul(slope_like, l); w = Softmax<axis=@axis>(mul)",
		13: "l = LeakyRelu<alpha=@slope>(v); slope = Constant<value_float=@slope>(); slope_cast = " +
			"Cast<to=10>(slope); " +
			"mul = Mul(slope_cast, l); w = Softmax<axis=@axis>(mul)",
	} {
		m := target(t, opset, text)
		if m.Problem != nil || len(m.Functions) != 1 {
			t.Fatalf("%v, %d functions", m.Problem, len(m.Functions))
		}
		f := m.Functions[0]
		if got := compact(f.Body); got != want {
			t.Errorf("opset %d: got  %s\nwant %s", opset, got, want)
		}
		if f.Opset("") != opset || f.Domain != "my" || f.Name != "F" ||
			strings.Join(f.Attributes, " ") != "slope axis" || (f.Overload == "") != (opset >= 15) {
			t.Errorf("opset %d: %s.%s %q %v", opset, f.Domain, f.Name, f.Overload, f.Opsets)
		}
		n := m.Replacement.Nodes[0]
		if n.Overload != f.Overload || n.AttrFloat("slope", 0) != 0.25 || n.AttrInt("axis", 0) != -1 {
			t.Errorf("opset %d: the call is %s", opset, n.Text())
		}
	}
}
