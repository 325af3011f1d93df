package onnx

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// valueInfos and the other helpers make small models by name.
func valueInfos(names ...string) []*onnxpb.ValueInfoProto {
	var vs []*onnxpb.ValueInfoProto
	for _, n := range names {
		vs = append(vs, &onnxpb.ValueInfoProto{Name: ptr(n)})
	}
	return vs
}

// node makes a node from "out1,out2 = Op(in1,in2)".
func node(text string, attributes ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	outputs, rest, _ := strings.Cut(text, " = ")
	op, inputs, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "(")
	domain := ""
	if d, o, found := strings.Cut(op, "."); found {
		domain, op = d, o
	}
	n := &onnxpb.NodeProto{OpType: &op, Name: ptr("n_" + outputs), Domain: &domain, Output: strings.Split(outputs, ","),
		Attribute: attributes}
	if inputs != "" {
		n.Input = strings.Split(inputs, ",")
	}
	return n
}

func graphAttribute(name string, g *onnxpb.GraphProto) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_GRAPH.Enum(), G: g}
}

func floats(name string, raw []byte, dims ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: ptr(int32(Float)), Dims: dims, RawData: raw}
}

func modelOf(g *onnxpb.GraphProto, fs ...*onnxpb.FunctionProto) *onnxpb.ModelProto {
	return &onnxpb.ModelProto{IrVersion: ptr(int64(10)), Graph: g, Functions: fs}
}

func function(name string, nodes ...*onnxpb.NodeProto) *onnxpb.FunctionProto {
	return &onnxpb.FunctionProto{Name: &name, Domain: ptr("local"), Input: []string{"a"}, Node: nodes}
}

func nested(depth int) *onnxpb.GraphProto {
	g := &onnxpb.GraphProto{}
	for range depth - 1 {
		g = &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{node("y = If()", graphAttribute("then_branch", g))}}
	}
	return g
}

func TestReadErrors(t *testing.T) {
	in := valueInfos("x")
	relu := node("y = Relu(x)")
	graph := func(nodes ...*onnxpb.NodeProto) *onnxpb.ModelProto {
		return modelOf(&onnxpb.GraphProto{Name: ptr("g"), Input: in, Node: nodes})
	}
	initializers := func(ts ...*onnxpb.TensorProto) *onnxpb.ModelProto {
		return modelOf(&onnxpb.GraphProto{Name: ptr("g"), Initializer: ts})
	}
	for name, test := range map[string]struct {
		p    *onnxpb.ModelProto
		want string // parts of the message, separated by |
	}{
		"no graph":            {&onnxpb.ModelProto{IrVersion: ptr(int64(3))}, "no graph"},
		"two nodes, one name": {graph(relu, node("y = Abs(x)")), `value "y" is defined twice|"g"|node 1 "n_y" (Abs)`},
		"input and node":      {graph(node("x = Abs(x)")), `"x" is defined twice`},
		"two inputs":          {modelOf(&onnxpb.GraphProto{Input: valueInfos("x", "x")}), `"x" is defined twice`},
		"two initializers": {initializers(floats("w", make([]byte, 4)), floats("w", make([]byte, 4))),
			`initializer "w" is defined twice`},
		"two functions": {modelOf(&onnxpb.GraphProto{}, function("F"), function("F")), "local.F|defined twice"},
		"two attributes": {graph(node("y = Elu(x)", &onnxpb.AttributeProto{Name: ptr("alpha")},
			&onnxpb.AttributeProto{Name: ptr("alpha")})), `(Elu) has the attribute "alpha" twice`},
		"undefined input": {graph(node("y = Add(x,z)")), `node 0 "n_y" (Add) reads "z", which nothing defines`},
		"undefined output": {modelOf(&onnxpb.GraphProto{Name: ptr("g"), Output: valueInfos("y")}),
			`output "y" of graph "g"`},
		"cycle": {graph(node("p = Abs(x)"), node("q = Add(p,r)"), node("r = Abs(q)"), node("s = Abs(r)")),
			`graph "g" has a cycle through node "n_`},
		"own output": {graph(node("y = Add(x,y)")), `reads its own output "y"`},
		"cycle through a body": {
			graph(node("c = If(x)", graphAttribute("then_branch", &onnxpb.GraphProto{Output: valueInfos("c")}))),
			"own output"},
		"dims overflow":        {initializers(floats("w", []byte{1}, 1<<40, 1<<40)), `tensor "w"|overflow`},
		"dims overflow, typed": {initializers(floats("w", nil, 1<<40, 1<<40)), `tensor "w"|overflow`},
		"negative dims":        {initializers(floats("w", []byte{}, -1)), `tensor "w"|negative dimension`},
		"raw too short": {initializers(floats("w", make([]byte, 7), 2)),
			`graph "g"|tensor "w"|takes 8 bytes, but raw_data holds 7`},
		"raw of no type": {initializers(&onnxpb.TensorProto{Name: ptr("w"), RawData: []byte{1}}), "no fixed size"},
		"raw in an attribute": {
			graph(node("y = Constant()",
				&onnxpb.AttributeProto{Name: ptr("value"), T: floats("", make([]byte, 3), 1)})),
			`node 0 "n_y" (Constant)|attribute "value"|raw_data holds 3`},
		"deep nesting": {modelOf(nested(wire.MaxNesting + 1)), "nested more than 128 deep"},
		"recursive function": {modelOf(&onnxpb.GraphProto{}, function("F", node("y = local.F(a)"))),
			"local.F|calls itself"},
		"recursive functions": {modelOf(&onnxpb.GraphProto{}, function("F", node("y = local.G(a)")),
			function("G", node("y = If(a)",
				graphAttribute("then_branch", &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{node("z = local.F(a)")}})))),
			"calls itself"},
		"function output": {modelOf(&onnxpb.GraphProto{}, &onnxpb.FunctionProto{Name: ptr("F"), Output: []string{"y"}}),
			`no node makes the output "y"`},
		"training data too few": {
			&onnxpb.ModelProto{Graph: &onnxpb.GraphProto{},
				TrainingInfo: []*onnxpb.TrainingInfoProto{
					{Algorithm: initializers(floats("w", make([]byte, 7), 2)).Graph}}}, `training info|tensor "w"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeMessage(t, test.p)
			m, err := Read(path)
			if err == nil {
				t.Fatalf("no error for\n%s", m.Graph.Text())
			}
			for _, want := range append(strings.Split(test.want, "|"), path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q says nothing of %q", err, want)
				}
			}
		})
	}
}

// TestReadValid covers files that look wrong but are valid.
func TestReadValid(t *testing.T) {
	for name, p := range map[string]*onnxpb.ModelProto{
		"out of order": modelOf(&onnxpb.GraphProto{Input: valueInfos("x"),
			Node: []*onnxpb.NodeProto{node("z = Abs(y)"), node("y = Abs(x)")}, Output: valueInfos("z")}),
		"nested to the limit": modelOf(nested(wire.MaxNesting)),
		"shadowed": modelOf(&onnxpb.GraphProto{Input: valueInfos("x"),
			Node: []*onnxpb.NodeProto{
				node("y = If(x)", graphAttribute("then_branch",
					&onnxpb.GraphProto{Node: []*onnxpb.NodeProto{node("x = Relu(y2)")}, Input: valueInfos("y2")}))}}),
		"overloads": modelOf(&onnxpb.GraphProto{}, function("F"),
			&onnxpb.FunctionProto{Name: ptr("F"), Domain: ptr("local"), Overload: ptr("2"),
				Node: []*onnxpb.NodeProto{node("y = local.F()")}}),
		"diamond of calls": modelOf(&onnxpb.GraphProto{}, function("F", node("y = local.G(a)"), node("z = local.H(a)")),
			function("G", node("y = local.H(a)")), function("H")),
	} {
		m, err := Read(writeMessage(t, p))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name == "out of order" && m.Graph.Nodes[0].Outputs[0].Name != "y" {
			t.Errorf("not sorted:\n%s", m.Graph.Text())
		}
		m.Close()
	}
}

func TestReadDamagedFiles(t *testing.T) {
	if _, err := Read(filepath.Join(t.TempDir(), "absent.onnx")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Error(err)
	}
	whole, err := proto.Marshal(everything())
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) / 97 { // no prefix is a model or makes Read panic
		if _, err := readBytes(whole[:n*97], &externalFiles{}); err == nil {
			t.Errorf("the first %d of %d bytes are read as a model", n*97, len(whole))
		}
	}
	big := appendField(nil, 7, appendField(nil, 5, bytes.Repeat([]byte{0x4a}, 4000)))
	for name, test := range map[string]struct {
		b    []byte
		want string
	}{
		"empty": {nil, "is empty"},
		"text":  {[]byte("hello, this is a text file"), "not a protobuf message of an ONNX model"},
		"json":  {[]byte(`{"graph": {}}`), "not a protobuf message of an ONNX model"},
		"zeros": {make([]byte, 1000), "not a protobuf message of an ONNX model: byte 0"},
		"lfs": {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize " +
			"1\n"), "Git LFS pointer"},
		"checkpoint":         {[]byte("PK\x03\x04archive/data.pkl"), "torch.onnx.export"},
		"GGUF":               {[]byte("GGUF\x03\x00\x00\x00"), "weights load"},
		"safetensors":        {[]byte("\x40\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\":{}}"), "a safetensors file"},
		"TFLite":             {[]byte("\x1c\x00\x00\x00TFL3"), "tf2onnx"},
		"page":               {[]byte("\n<!DOCTYPE html>\n<html>"), "an HTML page"},
		"gzip":               {[]byte("\x1f\x8b\x08\x00"), "unpack it"},
		"truncated":          {everythingBytes(t)[:2000], "truncated: the graph at byte"},
		"garbage":            {big, "of a tensor"},
		"many tiny messages": {appendField(nil, 7, bytes.Repeat([]byte{0x0a, 0}, wire.FreeMessages+10)), "messages in"},
	} {
		_, err := Read(writeFile(t, "model.onnx", test.b))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "model.onnx") {
			t.Errorf("%s: error %q says nothing of %q", name, err, test.want)
		}
	}
}

func everythingBytes(t *testing.T) []byte {
	b, err := proto.Marshal(everything())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// appendField appends one length-delimited field.
func appendField(b []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), content)
}

// TestMergedMessages reads a message in two pieces, which protobuf allows but encoders never write.
func TestMergedMessages(t *testing.T) {
	first := appendField(nil, 5, appendField(nil, 8, []byte("w"))) // graph.initializer.name
	tensor := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), uint64(Uint8))
	tensor = protowire.AppendVarint(protowire.AppendTag(tensor, 1, protowire.VarintType), 3)
	tensor = appendField(appendField(tensor, 9, []byte("old value")), 9, []byte("new")) // the last raw_data counts
	second := appendField(nil, 5, appendField(tensor, 8, []byte("v")))
	m, err := readBytes(appendField(appendField(nil, 7, first), 7, second), &externalFiles{})
	if err != nil {
		t.Fatal(err)
	}
	v := m.Graph.Value("v")
	if v == nil || m.Graph.Value("w") == nil {
		t.Fatalf("initializers are missing:\n%s", m.Graph.Text())
	}
	if b, err := v.Const.Bytes(); err != nil || string(b) != "new" {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestClosedModel(t *testing.T) {
	m, err := Read(writeMessage(t,
		modelOf(&onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{floats("w", make([]byte, 4000), 1000)}})))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Graph.Value("w").Const.Bytes(); !errors.Is(err, ErrClosed) {
		t.Errorf("Bytes after Close: %v", err)
	}
	if err := Write(filepath.Join(t.TempDir(), "o.onnx"), m); !errors.Is(err, ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
