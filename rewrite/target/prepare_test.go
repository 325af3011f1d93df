package target

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestParseShapes(t *testing.T) {
	s, err := ParseShapes([]string{"input_ids=2x7", "past=3", "a=b=1x1x1"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int64{"input_ids": {2, 7}, "a=b": {1, 1, 1}}
	if !maps.EqualFunc(s.Inputs, want, slices.Equal) || !maps.Equal(s.Sizes, map[string]int64{"past": 3}) {
		t.Errorf("read %v and %v", s.Inputs, s.Sizes)
	}
	for text, reason := range map[string]string{"input_ids": "write the name of an input and its shape",
		"=3": "write the name",
		"x=": `"" is not a size`, "x=0": "sizes are numbers from 1 on", "x=-1x2": "not a size",
		"x=2xb": `"b" is not a size`,
		"x=2,3": "not a size"} {
		if _, err := ParseShapes([]string{text}); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: got %v, want an error with %q", text, err, reason)
		}
	}
	if _, err := ParseShapes([]string{"x=2", "x=2x3"}); err == nil ||
		!strings.Contains(err.Error(), "already has a size") {
		t.Errorf("got %v", err)
	}
}

// oldModel returns a model of opset 17 with inputs [batch, 4] and [n].
func oldModel() *onnx.Model {
	m := onnx.New(8, 17)
	dim := func(name string) onnx.Dim { return onnx.Dim{Value: -1, Param: name} }
	x := m.Graph.AddInput("x",
		onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{dim("batch"), {Value: 4}}})
	n := m.Graph.AddInput("list", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{dim("n")}})
	y := m.Graph.NewValue("y")
	m.Graph.AddNode("ReduceSum", []*onnx.Value{x}, []*onnx.Value{y})
	z := m.Graph.NewValue("z")
	m.Graph.AddNode("Add", []*onnx.Value{y, n}, []*onnx.Value{z})
	for _, v := range []*onnx.Value{y, z} {
		v.SetType(onnx.Type{DataType: onnx.Float})
		m.Graph.AddOutput(v)
	}
	return m
}

func TestPrepare(t *testing.T) {
	fixed := &Target{Name: "fixed", Opset: 23, Static: true}
	free := &Target{Name: "free"}
	for _, c := range []struct {
		name   string
		to     *Target
		shapes []string
		opset  int64
		err    string
	}{
		{"as it is", free, nil, 17, ""},
		{"to the opset", standard, nil, standard.Opset, ""},
		{"shapes alone", free, []string{"x=2x4"}, 17, ""},
		{"static", fixed, []string{"batch=2", "list=3"}, 23, ""},
		{"static, all by name", fixed, []string{"x=2x4", "n=3"}, 23, ""},
		{"not static", fixed, []string{"x=2x4"}, 17,
			`target fixed takes static shapes, but input "list" is float32[n]: fix it with --shape`},
		{"another rank", free, []string{"x=2x4x1"}, 17, "rank 2"},
		{"no such name", free, []string{"tokens=2"}, 17, "tokens"},
		{"no such input", free, []string{"tokens=2x3"}, 17, `no input "tokens"`},
		{"no such opset", &Target{Name: "new", Opset: 1000}, nil, 17, "target new takes opset 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParseShapes(c.shapes)
			if err != nil {
				t.Fatal(err)
			}
			m := oldModel()
			_, err = Prepare(m, c.to, s)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want an error with %q", err, c.err)
			}
			if m.Opset("") != c.opset {
				t.Errorf("opset %d, want %d", m.Opset(""), c.opset)
			}
			if typ, _ := m.Graph.Inputs[0].Type(); c.shapes != nil && c.err == "" && typ.Dims[0].Value != 2 {
				t.Errorf("the batch of x is %v", typ.Dims[0])
			}
		})
	}
}
