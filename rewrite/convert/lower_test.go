package convert

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestAdditions compares the table with the versions of the standard.
func TestAdditions(t *testing.T) {
	count := 0
	for op, versions := range known().ops {
		for i, v := range versions {
			if i == 0 || v.same || v.since <= OldestLowered {
				continue
			}
			count++
			if _, ok := additions[op][v.since]; !ok {
				t.Errorf("what %s(%d) added is not known", op, v.since)
			}
		}
	}
	for op, versions := range additions {
		count -= len(versions)
		for since := range versions {
			if since <= OldestLowered {
				t.Errorf("%s(%d) is never asked for", op, since)
			}
		}
	}
	if count != 0 {
		t.Errorf("the table has other versions: %d are missing", count)
	}
}

// TestLower lowers a model with a function, and expects errors for additions that older opsets cannot express.
func TestLower(t *testing.T) {
	build := func(mode string, to onnx.DataType) *onnx.Model {
		b := onnxtest.New(28)
		b.Model.IRVersion = 14
		b.Model.ImportOpset("local", 1)
		f := onnx.NewFunction("local", "F", "", 28)
		body := onnxtest.Builder{Graph: f.Body}
		body.Output(body.Op("Relu", f.Body.AddInput("x", onnx.Type{})))
		b.Model.Functions = append(b.Model.Functions, f)
		x := b.Op("local:F", b.Input("x", onnx.Float, 1, 4, 4, 4))
		x = b.Op("SpaceToDepth", x, onnx.IntAttr("blocksize", 2), onnx.StringAttr("mode", mode))
		b.Output(b.Op("Cast", x, onnx.IntAttr("to", int64(to))))
		return b.Model
	}
	m := build("DCR", onnx.Float16)
	if err := Lower(m, 22); err != nil {
		t.Fatal(err)
	}
	if n := m.Graph.Nodes[1]; m.Opset("") != 22 || m.Functions[0].Opset("") != 22 || m.IRVersion != 10 ||
		n.Attr("mode") != nil || n.Attr("blocksize") == nil {
		t.Errorf("opset %d, function's %d, IR version %d, %+v", m.Opset(""), m.Functions[0].Opset(""), m.IRVersion,
			n.Attributes)
	}
	for reason, c := range map[string]struct {
		m  *onnx.Model
		to int64
	}{
		"attribute mode is new in opset 28":          {build("CRD", onnx.Float16), 27},
		"casts to float8e8m0":                        {build("DCR", onnx.Float8E8M0), 27},
		"older than 21":                              {build("DCR", onnx.Float16), 20},
		"Swish is an op of opset 24":                 {with("Swish"), 23},
		"SwiGLU is an op of opset 28":                {with("SwiGLU"), 27},
		"not a known standard op":                    {with("Unheard"), 27},
		"input 6 is new in opset 24":                 {with("Attention"), 23},
		"function local.F has opset 22":              {old(build("DCR", onnx.Float16)), 23},
		"\"float4\" is of type float4e2m1, which op": {typed(build("DCR", onnx.Float16)), 27},
	} {
		before := c.m.Opset("")
		if err := Lower(c.m, c.to); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, expected %q", err, reason)
		}
		if c.m.Opset("") != before {
			t.Errorf("%q: opset %d", reason, c.m.Opset(""))
		}
	}
}

func with(op string) *onnx.Model {
	b := onnxtest.New(28)
	x := b.Input("x", onnx.Float, 4)
	b.Output(b.Op(op, x, x, x, x, x, x, x))
	return b.Model
}

func old(m *onnx.Model) *onnx.Model {
	m.Functions[0].Opsets[0].Version = 22
	return m
}

func typed(m *onnx.Model) *onnx.Model {
	m.Graph.AddInput("float4", onnxtest.Type(onnx.Float4E2M1, 4))
	return m
}

// TestAdds: which nodes use something of a newer version of their op, whatever the value.
func TestAdds(t *testing.T) {
	cast := model(24, "Cast", vector, onnx.StringAttr("round_mode", "up")).Graph.Nodes[0]
	attention := model(24, "Attention", vector).Graph.Nodes[0]
	for i := range 7 {
		attention.SetInput(i, attention.Input(0))
	}
	for _, c := range []struct {
		n           *onnx.Node
		after, upTo int64
		want        string
	}{
		{cast, 23, 24, "its attribute round_mode is new in opset 24"}, {cast, 21, 23, ""}, {cast, 24, 28, ""},
		{attention, 23, 24, "its input 6 is new in opset 24"}, {attention, 24, 25, ""},
		{model(21, "Cast", vector).Graph.Nodes[0], 21, 28, ""},
		{model(13, "ReduceSum", vector).Graph.Nodes[0], 11, 13, "the changes in opset 13 are not known"},
	} {
		if err := Adds(c.n, c.after, c.upTo); (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s after %d up to %d: %v, want %q", c.n.OpType, c.after, c.upTo, err, c.want)
		}
	}
	for op, want := range map[string]int64{"Add": 7, "Gelu": 20, "RMSNormalization": 23, "Nonsense": 0} {
		if got := Since(op); got != want {
			t.Errorf("%s is in opset %d, want %d", op, got, want)
		}
	}
}
