package onnx

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestMutations changes a few random fields of a model with every field set, which byte-wise fuzzing can hardly do
// without breaking the message. Each result must be rejected, or read and written back unchanged.
func TestMutations(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	r := rand.New(rand.NewPCG(1, 2))
	original := everything()
	read := 0
	for i := range rounds {
		p := proto.Clone(original).(*onnxpb.ModelProto)
		for range 1 + r.IntN(3) {
			mutate(p.ProtoReflect(), r)
		}
		b, err := proto.Marshal(p)
		must(t, err)
		m, err := readBytes(b, &externalFiles{options: readOptions{allowMissingData: true}})
		if err != nil {
			continue
		}
		read++
		m.Graph.Text()
		m.eachTensor(func(x *Tensor) { x.Bytes() })
		inOrder := keepsOrder(m)
		out := encode(t, m)
		q := &onnxpb.ModelProto{}
		must(t, proto.Unmarshal(out, q))
		if inOrder && out != nil && !proto.Equal(p, q) {
			t.Fatalf("round %d: the written model differs", i)
		}
	}
	t.Logf("%d of %d mutated models are still models", read, rounds)
	if read == 0 || read == rounds {
		t.Error("the mutations are too strong or too weak")
	}
}

// mutate changes one field of a random message below m.
func mutate(m protoreflect.Message, r *rand.Rand) {
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	if len(fields) == 0 {
		return
	}
	// Range has no fixed order
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	names := []string{"", "x", "y", "big", "one_w", "All", "local", "o", "\xff"}
	numbers := []int64{0, 1, -1, 2, 29, math.MaxInt32, math.MaxInt64, math.MinInt64}
	f := fields[r.IntN(len(fields))]
	if r.IntN(12) == 0 {
		m.Clear(f)
		return
	}
	change := func(v protoreflect.Value) protoreflect.Value {
		n := numbers[r.IntN(len(numbers))]
		switch f.Kind() {
		case protoreflect.MessageKind:
			mutate(v.Message(), r)
			return v
		case protoreflect.StringKind:
			return protoreflect.ValueOfString(names[r.IntN(len(names))])
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes(v.Bytes()[:r.IntN(len(v.Bytes())+1)])
		case protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(n)
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(int32(n))
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(16)))
		}
		return v
	}
	if !f.IsList() {
		m.Set(f, change(m.Get(f)))
		return
	}
	list := m.Mutable(f).List()
	i := r.IntN(list.Len())
	switch {
	case r.IntN(8) == 0:
		list.Truncate(i)
	case r.IntN(8) == 0:
		list.Append(list.Get(i)) // the same message twice
	default:
		list.Set(i, change(list.Get(i)))
	}
}
