package onnx

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// everything makes a valid model that sets every field of every message of onnx.proto, with graphs three deep, every
// data type in raw and typed form, and unknown fields in every message.
func everything() *onnxpb.ModelProto {
	tensor := func(name string, dims ...int64) *onnxpb.TensorProto {
		n := int64(4)
		for _, d := range dims {
			n *= d
		}
		return &onnxpb.TensorProto{Name: &name, DataType: ptr(int32(Float)), Dims: dims,
			RawData:   bytes.Repeat([]byte{7}, int(n)),
			DocString: ptr("doc"), MetadataProps: props("t")}
	}
	sparse := func(name string) *onnxpb.SparseTensorProto {
		return &onnxpb.SparseTensorProto{Values: tensor(name, 500), Dims: []int64{500, 2},
			Indices: &onnxpb.TensorProto{DataType: ptr(int32(Int64)), Dims: []int64{500}, RawData: make([]byte, 4000)}}
	}
	tensorType := func(t DataType) *onnxpb.TypeProto {
		return &onnxpb.TypeProto{Denotation: ptr("IMAGE"),
			Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
				ElemType: ptr(int32(t)), Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
					{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 2}, Denotation: ptr("N")},
					{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "seq"}}, {}}}}}}
	}
	types := []*onnxpb.TypeProto{
		{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: tensorType(Float)}}},
		{Value: &onnxpb.TypeProto_MapType{
			MapType: &onnxpb.TypeProto_Map{KeyType: ptr(int32(Int64)), ValueType: tensorType(Float)}}},
		{Value: &onnxpb.TypeProto_OptionalType{OptionalType: &onnxpb.TypeProto_Optional{ElemType: tensorType(Float)}}},
		{Value: &onnxpb.TypeProto_SparseTensorType{
			SparseTensorType: &onnxpb.TypeProto_SparseTensor{ElemType: ptr(int32(Float)),
				Shape: &onnxpb.TensorShapeProto{}}}},
		{Value: &onnxpb.TypeProto_OpaqueType{OpaqueType: &onnxpb.TypeProto_Opaque{Domain: ptr("d"), Name: ptr("n")}}},
		{},
	}
	value := func(name string, t *onnxpb.TypeProto) *onnxpb.ValueInfoProto {
		return &onnxpb.ValueInfoProto{Name: &name, Type: t, DocString: ptr("doc"), MetadataProps: props("v")}
	}
	attribute := func(name string, t onnxpb.AttributeProto_AttributeType,
		fill func(*onnxpb.AttributeProto)) *onnxpb.AttributeProto {
		a := &onnxpb.AttributeProto{Name: &name, Type: t.Enum(), DocString: ptr("doc")}
		fill(a)
		return a
	}
	subgraph := func(prefix string, depth *onnxpb.GraphProto) *onnxpb.GraphProto {
		g := &onnxpb.GraphProto{Name: ptr(prefix), Initializer: []*onnxpb.TensorProto{tensor(prefix+"_w", 600)},
			Node: []*onnxpb.NodeProto{
				{OpType: ptr("Add"), Input: []string{"x", prefix + "_w"}, Output: []string{prefix + "_y"}}},
			// one output names an outer value
			Output: []*onnxpb.ValueInfoProto{value("x", nil), value(prefix+"_y", nil)}}
		if depth != nil {
			g.Node = append(g.Node,
				&onnxpb.NodeProto{OpType: ptr("If"), Input: []string{"c"}, Output: []string{"", prefix + "_z"},
					Attribute: []*onnxpb.AttributeProto{
						{Name: ptr("then_branch"), Type: onnxpb.AttributeProto_GRAPH.Enum(),
							G: depth}}})
		}
		return g
	}
	graph := &onnxpb.GraphProto{
		Name: ptr("everything"), DocString: ptr("doc"), MetadataProps: props("g"),
		Input: []*onnxpb.ValueInfoProto{value("x", tensorType(Float)), value("c", tensorType(Bool)),
			value("default", nil), value("map", types[1])},
		Output: []*onnxpb.ValueInfoProto{value("x", nil), value("y", tensorType(Float)), value("map", types[1])},
		ValueInfo: []*onnxpb.ValueInfoProto{value("y", tensorType(Float)), value("nowhere", types[0]), value("y", nil),
			value("big", nil)},
		Initializer:       []*onnxpb.TensorProto{tensor("default", 2), tensor("big", 30, 40), tensor("scalar")},
		SparseInitializer: []*onnxpb.SparseTensorProto{sparse("sparse")},
		QuantizationAnnotation: []*onnxpb.TensorAnnotation{{TensorName: ptr("x"),
			QuantParameterTensorNames: props("SCALE_TENSOR")}},
	}
	for i := DataType(1); i <= lastDataType; i++ {
		graph.Initializer = append(graph.Initializer, typed(i), rawOf(i))
	}
	graph.Initializer = append(graph.Initializer,
		&onnxpb.TensorProto{Name: ptr("unset_raw"), DataType: ptr(int32(Float)), Dims: []int64{0}},
		&onnxpb.TensorProto{Name: ptr("empty_raw"), DataType: ptr(int32(Float)), Dims: []int64{0}, RawData: []byte{}},
		&onnxpb.TensorProto{Name: ptr("both"), DataType: ptr(int32(Float)), Dims: []int64{1}, RawData: []byte{},
			FloatData: []float32{3}},
		&onnxpb.TensorProto{Name: ptr("unknown_type"), DataType: ptr(int32(lastDataType + 40)), Dims: []int64{9},
			RawData: []byte{1}},
		&onnxpb.TensorProto{Name: ptr("segment"), DataType: ptr(int32(Float)), Dims: []int64{1},
			FloatData:    []float32{1},
			Segment:      &onnxpb.TensorProto_Segment{Begin: ptr(int64(0)), End: ptr(int64(1))},
			DataLocation: onnxpb.TensorProto_DEFAULT.Enum()})
	all := []*onnxpb.AttributeProto{
		attribute("f", onnxpb.AttributeProto_FLOAT, func(a *onnxpb.AttributeProto) { a.F = ptr(float32(0)) }),
		attribute("i", onnxpb.AttributeProto_INT, func(a *onnxpb.AttributeProto) { a.I = ptr(int64(-1)) }),
		attribute("s", onnxpb.AttributeProto_STRING, func(a *onnxpb.AttributeProto) { a.S = []byte("no utf-8 \xff") }),
		attribute("empty_s", onnxpb.AttributeProto_STRING, func(a *onnxpb.AttributeProto) { a.S = []byte{} }),
		attribute("t", onnxpb.AttributeProto_TENSOR, func(a *onnxpb.AttributeProto) { a.T = tensor("", 700) }),
		attribute("empty_t", onnxpb.AttributeProto_TENSOR, func(a *onnxpb.AttributeProto) {
			a.T = &onnxpb.TensorProto{}
		}),
		attribute("g", onnxpb.AttributeProto_GRAPH, func(a *onnxpb.AttributeProto) {
			a.G = subgraph("one", subgraph("two", subgraph("three", nil)))
		}),
		attribute("floats", onnxpb.AttributeProto_FLOATS, func(a *onnxpb.AttributeProto) {
			a.Floats = []float32{1, 2}
		}),
		attribute("ints", onnxpb.AttributeProto_INTS, func(a *onnxpb.AttributeProto) { a.Ints = []int64{1, 2} }),
		attribute("no_ints", onnxpb.AttributeProto_INTS, func(*onnxpb.AttributeProto) {}),
		attribute("strings", onnxpb.AttributeProto_STRINGS, func(a *onnxpb.AttributeProto) {
			a.Strings = [][]byte{{}, []byte("b")}
		}),
		attribute("tensors", onnxpb.AttributeProto_TENSORS, func(a *onnxpb.AttributeProto) {
			a.Tensors = []*onnxpb.TensorProto{tensor("a", 300), tensor("b")}
		}),
		attribute("graphs", onnxpb.AttributeProto_GRAPHS, func(a *onnxpb.AttributeProto) {
			a.Graphs = []*onnxpb.GraphProto{subgraph("four", nil), {}}
		}),
		attribute("sparse", onnxpb.AttributeProto_SPARSE_TENSOR, func(a *onnxpb.AttributeProto) {
			a.SparseTensor = sparse("")
		}),
		attribute("sparses", onnxpb.AttributeProto_SPARSE_TENSORS, func(a *onnxpb.AttributeProto) {
			a.SparseTensors = []*onnxpb.SparseTensorProto{sparse(""), {}}
		}),
		attribute("tp", onnxpb.AttributeProto_TYPE_PROTO, func(a *onnxpb.AttributeProto) { a.Tp = types[2] }),
		attribute("tps", onnxpb.AttributeProto_TYPE_PROTOS, func(a *onnxpb.AttributeProto) { a.TypeProtos = types }),
		attribute("no_value", onnxpb.AttributeProto_FLOAT, func(*onnxpb.AttributeProto) {}),
		{Name: ptr("no_type"), I: ptr(int64(3))},
		{Name: ptr("future"), Type: onnxpb.AttributeProto_AttributeType(77).Enum()},
	}
	graph.Node = []*onnxpb.NodeProto{
		{OpType: ptr("All"), Name: ptr("n"), Domain: ptr("local"), Overload: ptr("o"), DocString: ptr("doc"),
			Attribute: all,
			Input:     []string{"x", "", "big", "sparse"}, Output: []string{"y", ""}, MetadataProps: props("n"),
			DeviceConfigurations: []*onnxpb.NodeDeviceConfigurationProto{
				{ConfigurationId: ptr("gpus"), PipelineStage: ptr(int32(1)),
					ShardingSpec: []*onnxpb.ShardingSpecProto{{TensorName: ptr("x"), Device: []int64{0, 1},
						IndexToDeviceGroupMap: []*onnxpb.IntIntListEntryProto{{Key: ptr(int64(-1)), Value: []int64{0}}},
						ShardedDim: []*onnxpb.ShardedDimProto{
							{Axis: ptr(int64(0)), SimpleSharding: []*onnxpb.SimpleShardedDimProto{
								{Dim: &onnxpb.SimpleShardedDimProto_DimValue{DimValue: 2}, NumShards: ptr(int64(2))},
								{Dim: &onnxpb.SimpleShardedDimProto_DimParam{DimParam: "n"}}}}}}}}}},
		{OpType: ptr("Nothing")},
	}
	function := func(overload string) *onnxpb.FunctionProto {
		return &onnxpb.FunctionProto{Name: ptr("All"), Domain: ptr("local"), Overload: &overload, DocString: ptr("doc"),
			Input: []string{"a", "b"}, Output: []string{"r", "a"}, Attribute: []string{"alpha"},
			MetadataProps: props("f"),
			AttributeProto: []*onnxpb.AttributeProto{
				attribute("t", onnxpb.AttributeProto_TENSOR, func(a *onnxpb.AttributeProto) { a.T = tensor("", 400) })},
			OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: ptr(""), Version: ptr(int64(21))}},
			ValueInfo:   []*onnxpb.ValueInfoProto{value("r", tensorType(Float))},
			Node: []*onnxpb.NodeProto{{OpType: ptr("Elu"), Input: []string{"a"}, Output: []string{"r"},
				Attribute: []*onnxpb.AttributeProto{
					{Name: ptr("alpha"), RefAttrName: ptr("alpha"), Type: onnxpb.AttributeProto_FLOAT.Enum()}}}}}
	}
	p := &onnxpb.ModelProto{
		IrVersion: ptr(int64(14)), ProducerName: ptr("p"), ProducerVersion: ptr(""), Domain: ptr("d"),
		ModelVersion: ptr(int64(2)), DocString: ptr("doc"),
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: ptr(int64(21))},
			{Domain: ptr("local"), Version: ptr(int64(1))}},
		MetadataProps: append(props("m"), &onnxpb.StringStringEntryProto{}),
		Graph:         graph, Functions: []*onnxpb.FunctionProto{function("o"), function("")},
		TrainingInfo: []*onnxpb.TrainingInfoProto{
			{Algorithm: subgraph("train", nil), Initialization: subgraph("init", nil),
				InitializationBinding: props("ib"), UpdateBinding: props("ub")}},
		Configuration: []*onnxpb.DeviceConfigurationProto{
			{Name: ptr("gpus"), NumDevices: ptr(int32(2)), Device: []string{"a", "b"}}},
	}
	addUnknown(p.ProtoReflect())
	return p
}

func props(prefix string) []*onnxpb.StringStringEntryProto {
	return []*onnxpb.StringStringEntryProto{{Key: ptr(prefix + "_key"), Value: ptr(prefix + "_value")},
		{Key: ptr(prefix + "_empty"), Value: ptr("")}}
}

// typed makes a tensor of five elements in the typed field of its data type.
func typed(d DataType) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: ptr("typed_" + d.String()), DataType: ptr(int32(d)), Dims: []int64{5}}
	n := 5
	switch d {
	case Float:
		t.FloatData = make([]float32, n)
	case Complex64:
		t.FloatData = make([]float32, 2*n)
	case Double:
		t.DoubleData = make([]float64, n)
	case Complex128:
		t.DoubleData = make([]float64, 2*n)
	case Int64:
		t.Int64Data = make([]int64, n)
	case Uint64, Uint32:
		t.Uint64Data = make([]uint64, n)
	case String:
		t.StringData = [][]byte{{}, []byte("a"), []byte("\xff"), {}, {}}
	case Uint4, Int4, Float4E2M1:
		t.Int32Data = make([]int32, 3)
	case Uint2, Int2:
		t.Int32Data = make([]int32, 2)
	default:
		t.Int32Data = []int32{1, 2, 3, 4, 5}
	}
	return t
}

func rawOf(d DataType) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: ptr("raw_" + d.String()), DataType: ptr(int32(d)), Dims: []int64{3, 400}}
	if d == String {
		t.Dims = []int64{0}
		return t
	}
	n, err := byteSize(d, t.Dims)
	if err != nil {
		panic(fmt.Sprint(d, err)) // every data type of the table has a size
	}
	t.RawData = bytes.Repeat([]byte{byte(d)}, int(n))
	return t
}

// addUnknown adds a field that is not in onnx.proto to every message.
func addUnknown(m protoreflect.Message) {
	unknown := protowire.AppendTag(nil, 5000, protowire.BytesType)
	m.SetUnknown(protowire.AppendBytes(unknown, []byte("later")))
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Message() == nil {
			return true
		}
		if f.IsList() {
			for i := range v.List().Len() {
				addUnknown(v.List().Get(i).Message())
			}
		} else {
			addUnknown(v.Message())
		}
		return true
	})
}

// TestEverythingIsComplete keeps the model in step with onnx.proto.
func TestEverythingIsComplete(t *testing.T) {
	set := map[protoreflect.FullName]bool{}
	var visit func(protoreflect.Message)
	visit = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			set[f.FullName()] = true
			switch {
			case f.Message() == nil:
			case f.IsList():
				for i := range v.List().Len() {
					visit(v.List().Get(i).Message())
				}
			default:
				visit(v.Message())
			}
			return true
		})
	}
	p := everything().ProtoReflect()
	visit(p)
	messages := p.Descriptor().ParentFile().Messages()
	var check func(protoreflect.MessageDescriptors)
	check = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			for k := range ms.Get(i).Fields().Len() {
				name := ms.Get(i).Fields().Get(k).FullName()
				if !set[name] && name != "mojopatch.onnx.TensorProto.external_data" { // see TestExternalData
					t.Errorf("field %s is nowhere set", name)
				}
			}
			check(ms.Get(i).Messages())
		}
	}
	check(messages)
}
