package serving

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// tritonTypes are KServe's names of types. config.pbtxt prefixes them with TYPE_ and calls BYTES STRING.
var tritonTypes = map[onnx.DataType]string{
	onnx.Bool: "BOOL", onnx.Uint8: "UINT8", onnx.Uint16: "UINT16", onnx.Uint32: "UINT32", onnx.Uint64: "UINT64",
	onnx.Int8: "INT8", onnx.Int16: "INT16", onnx.Int32: "INT32", onnx.Int64: "INT64", onnx.Float16: "FP16",
	onnx.BFloat16: "BF16", onnx.Float: "FP32", onnx.Double: "FP64", onnx.String: "BYTES",
}

// describe lists inputs, outputs and states, and decides whether requests are batched: the first axis of all must be
// the same batch of any size. For a decoder the roles of its inputs decide, otherwise the name of the dimension.
func (t *TritonModel) describe(m *onnx.Model, states []state) error {
	stateInput := func(v *onnx.Value) int {
		return slices.IndexFunc(states, func(s state) bool { return s.input == v || s.output == v })
	}
	batch, decoder := "", false
	if s, err := generate.Describe(m); err == nil {
		decoder = !slices.ContainsFunc(s.Caches, func(c generate.Cache) bool { return c.Batch != 0 })
	}
	for i, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		if v.Const != nil {
			continue // it has a default
		}
		typ, ok := v.Type()
		name, known := tritonTypes[typ.DataType]
		switch {
		case !ok || !typ.HasShape:
			return fmt.Errorf("%q has no declared shape, which config.pbtxt needs: declare it in the export", v.Name)
		case !known:
			return fmt.Errorf("%q has the type %s, which Triton does not support", v.Name, typ.DataType)
		}
		x := TritonTensor{Name: v.Name, DataType: name, Dims: []int64{}}
		for _, d := range typ.Dims {
			x.Dims = append(x.Dims, roles.Number(d).Value)
		}
		other := i > 0 && len(typ.Dims) > 0 && typ.Dims[0].Param != batch && !decoder
		if t.OneByOne == "" && (len(typ.Dims) == 0 || x.Dims[0] >= 0 || other) {
			t.OneByOne = fmt.Sprintf("the first axis of %q is not a batch of any size, as for the other inputs and "+
				"outputs", v.Name)
		}
		if len(typ.Dims) == 0 {
			x.Dims = []int64{1} // the back end makes it a scalar
		}
		if i == 0 && len(typ.Dims) > 0 {
			batch = typ.Dims[0].Param
		}
		k := stateInput(v)
		switch {
		case k >= 0 && states[k].input == v:
			t.States = append(t.States, TritonState{TritonTensor: x, Output: states[k].output.Name})
		case k >= 0:
		case i < len(m.Graph.Inputs):
			t.Inputs = append(t.Inputs, x)
		default:
			t.Outputs = append(t.Outputs, x)
		}
	}
	if t.MaxBatchSize == 0 || t.OneByOne != "" {
		t.MaxBatchSize = 0
		return nil
	}
	cut := func(x *TritonTensor) { x.Dims = x.Dims[1:] }
	for i := range t.Inputs {
		cut(&t.Inputs[i])
	}
	for i := range t.Outputs {
		cut(&t.Outputs[i])
	}
	for i := range t.States {
		cut(&t.States[i].TritonTensor)
	}
	return nil
}

// config returns config.pbtxt. The server opens the library by this path.
func (t *TritonModel) config(o TritonOptions, library string) string {
	var b strings.Builder
	line := func(indent int, format string, args ...any) {
		fmt.Fprintf(&b, strings.Repeat("  ", indent)+format+"\n", args...)
	}
	tensors := func(field string, list []TritonTensor) {
		for _, x := range list {
			line(0, "%s {", field)
			line(1, "name: %q", x.Name)
			x.lines(line, 1)
			line(0, "}")
		}
	}
	line(0, "name: %q", o.Name)
	line(0, `backend: "onnxruntime"`)
	line(0, "max_batch_size: %d", t.MaxBatchSize)
	tensors("input", t.Inputs)
	tensors("output", t.Outputs)
	switch {
	case len(t.States) > 0:
		t.sequences(line, o)
	case t.MaxBatchSize > 0:
		line(0, "dynamic_batching {")
		line(1, "max_queue_delay_microseconds: %d", o.QueueDelay)
		line(0, "}")
	}
	kind := "KIND_CPU"
	if o.GPU {
		kind = "KIND_GPU"
	}
	line(0, "instance_group {")
	line(1, "count: 1")
	line(1, "kind: %s", kind)
	line(0, "}")
	if library != "" {
		line(0, "model_operations {")
		line(1, "op_library_filename: %q", library)
		line(0, "}")
	}
	return b.String()
}

// lines writes the type and the dimensions of a tensor.
func (x TritonTensor) lines(line func(int, string, ...any), indent int) {
	line(indent, "data_type: TYPE_%s", strings.Replace(x.DataType, "BYTES", "STRING", 1))
	if len(x.Dims) == 0 { // the server requires a dimension
		line(indent, "dims: [1]")
		line(indent, "reshape { shape: [] }")
		return
	}
	line(indent, "dims: [%s]", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(x.Dims)), ", "), "[]"))
}

// sequences makes the server keep states. Requests of several sequences run together if their inputs have one shape.
func (t *TritonModel) sequences(line func(int, string, ...any), o TritonOptions) {
	line(0, "sequence_batching {")
	line(1, "max_sequence_idle_microseconds: %d", sequenceIdle)
	line(1, "oldest {")
	line(2, "max_candidate_sequences: %d", max(1, t.MaxBatchSize)*candidates)
	line(2, "max_queue_delay_microseconds: %d", o.QueueDelay)
	line(1, "}")
	for _, s := range t.States {
		line(1, "state {")
		line(2, "input_name: %q", s.Name)
		line(2, "output_name: %q", s.Output)
		s.lines(line, 2)
		line(2, "initial_state {")
		line(3, "name: %q", s.Name)
		s.lines(line, 3)
		line(3, "zero_data: true")
		line(2, "}")
		line(2, "use_same_buffer_for_input_output: true")
		line(1, "}")
	}
	line(0, "}")
}

// sequenceIdle is the time in microseconds without a request after which a sequence is dropped. candidates is the
// number of sequences that the server holds per running one.
const (
	sequenceIdle = 60_000_000
	candidates   = 4
)
