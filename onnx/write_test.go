package onnx

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
	"google.golang.org/protobuf/proto"
)

// weighty makes a model with a large, a small, a typed and two tied initializers.
func weighty(t *testing.T) *Model {
	t.Helper()
	m := New(10, 21)
	shared := bytes.Repeat([]byte{1, 2, 3, 4}, 1500)
	for _, x := range []struct {
		name string
		raw  []byte
	}{{"tied1", shared}, {"large", bytes.Repeat([]byte{5}, 5000)}, {"small", make([]byte, 400)}, {"tied2", shared}} {
		tensor, err := NewTensor(x.name, Uint8, []int64{int64(len(x.raw))}, x.raw)
		must(t, err)
		m.Graph.AddInitializer(tensor)
	}
	ints := &onnxpb.TensorProto{Name: ptr("typed"), DataType: ptr(int32(Int64)), Dims: []int64{200},
		Int64Data: make([]int64, 200)}
	for i := range ints.Int64Data {
		ints.Int64Data[i] = int64(i)
	}
	typed, err := (&decoder{files: &externalFiles{}}).tensor(ints)
	must(t, err)
	m.Graph.AddInitializer(typed)
	return m
}

// TestMarshal compares with the file that Write writes beside the model, including references.
func TestMarshal(t *testing.T) {
	folder := t.TempDir()
	in, out := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "out.onnx")
	must(t, Write(in, weighty(t), ExternalDataOver(1000)))
	m, err := Read(in)
	must(t, err)
	must(t, Write(out, m))
	want, err := os.ReadFile(out)
	must(t, err)
	got, err := Marshal(m)
	must(t, err)
	if !bytes.Equal(got, want) || len(got) > 4000 {
		t.Errorf("%d bytes, want the %d of the file", len(got), len(want))
	}
	must(t, m.Close())
	if _, err := Marshal(m); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed model: %v", err)
	}
	if got, err := Marshal(weighty(t)); err != nil || len(got) < 17000 {
		t.Errorf("in memory: %d bytes, %v", len(got), err)
	}
}

func TestExternalDataOver(t *testing.T) {
	m := weighty(t)
	out := filepath.Join(t.TempDir(), "out.onnx")
	must(t, Write(out, m, ExternalDataOver(1000)))
	p := message(t, out)
	offsets := map[string]string{}
	for _, tp := range p.Graph.Initializer {
		e, err := parseExternal(tp)
		if inline := tp.GetName() == "small"; inline != (tp.GetDataLocation() == onnxpb.TensorProto_DEFAULT) {
			t.Errorf("%s: inline %v, %v", tp.GetName(), !inline, err)
			continue
		} else if inline {
			continue
		}
		must(t, err)
		if e.Offset%pageSize != 0 || e.Location != "out.onnx.data" || tp.RawData != nil || len(tp.Int64Data) > 0 {
			t.Errorf("%s: %+v beside %d bytes", tp.GetName(), e, len(tp.RawData))
		}
		offsets[tp.GetName()] = tp.ExternalData[1].GetValue()
	}
	if offsets["tied1"] != offsets["tied2"] || offsets["tied1"] == offsets["large"] ||
		offsets["typed"] == offsets["large"] {
		t.Errorf("offsets %v: tied weights are not stored once", offsets)
	}
	if info, err := os.Stat(out + ".data"); err != nil || info.Size() != 2*8192+1600 {
		t.Errorf("data file: %v, %v", info, err)
	}
	read, err := Read(out)
	must(t, err)
	defer read.Close()
	sameTensors(t, m, read)

	// The model itself is unchanged: it can be written whole again.
	plain := filepath.Join(t.TempDir(), "plain.onnx")
	must(t, Write(plain, m))
	for _, tp := range message(t, plain).Graph.Initializer {
		if tp.GetDataLocation() != onnxpb.TensorProto_DEFAULT || len(tp.RawData)+len(tp.Int64Data) == 0 {
			t.Errorf("%s has lost its data", tp.GetName())
		}
	}

	// In another folder the external data are copied, tied ones once, with the same bytes.
	moved := filepath.Join(t.TempDir(), "out.onnx")
	must(t, Write(moved, read))
	sameFile(t, out+".data", moved+".data")
	again, err := Read(moved)
	must(t, err)
	defer again.Close()
	sameTensors(t, m, again)
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	must(t, err)
	y, err := os.ReadFile(b)
	must(t, err)
	if !bytes.Equal(x, y) {
		t.Errorf("%s (%d bytes) and %s (%d bytes) differ", a, len(x), b, len(y))
	}
}

// TestTooLarge lowers the limit above which models are split.
func TestTooLarge(t *testing.T) {
	m := weighty(t)
	attribute, err := NewTensor("", Uint8, []int64{3000}, make([]byte, 3000))
	must(t, err)
	m.Graph.AddNode("Constant", nil, []*Value{m.Graph.NewValue("c")}, TensorAttr("value", attribute))
	for limit, want := range map[int64]string{1 << 20: "", 5000: "large tied1 tied2 typed",
		3000: "large tied1 tied2 typed c"} {
		out := filepath.Join(t.TempDir(), "out.onnx")
		must(t, writeWith(out, m, writeOptions{externalOver: -1, limit: limit}))
		info, err := os.Stat(out)
		must(t, err)
		if info.Size() > limit {
			t.Errorf("limit %d: the model takes %d bytes", limit, info.Size())
		}
		p, count := message(t, out), 0
		wire.Tensors(func(tp *onnxpb.TensorProto, _ bool) {
			if tp.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
				count++
			}
		}).Model(p)
		if count != len(strings.Fields(want)) {
			t.Errorf("limit %d: %d external tensors, not %q", limit, count, want)
		}
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	if err := writeWith(out, m, writeOptions{externalOver: -1, limit: 100}); err == nil ||
		!strings.Contains(err.Error(), "even without its weights") {
		t.Errorf("limit 100: %v", err)
	}
	emptyFolder(t, filepath.Dir(out))
}

func writeWith(path string, m *Model, o writeOptions) error {
	s, err := stage(path, m, o)
	if err != nil {
		return err
	}
	return s.Commit()
}

func emptyFolder(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v was left behind (%v)", left, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	path, weights := externalModel(t, externalTensor("w", 5000, "location", "weights.bin"),
		&onnxpb.TensorProto{Name: ptr("inline"), DataType: ptr(int32(Uint8)), Dims: []int64{2000},
			RawData: make([]byte, 2000)})
	dir := filepath.Dir(path)
	before, err := os.ReadFile(path)
	must(t, err)
	m, err := Read(path)
	must(t, err)
	defer m.Close()
	must(t, os.Symlink("model.onnx", filepath.Join(dir, "same.onnx")))
	must(t, os.Link(filepath.Join(dir, "weights.bin"), filepath.Join(dir, "data.onnx.data")))
	entries, err := os.ReadDir(dir)
	must(t, err)
	for name, test := range map[string]struct{ out, want string }{
		"the input":             {path, "is the file that the model was read from"},
		"the input by a link":   {filepath.Join(dir, "same.onnx"), "is the file that the model was read from"},
		"the weights":           {filepath.Join(dir, "weights.bin"), "holds external data"},
		"the weights as data":   {filepath.Join(dir, "data.onnx"), "holds external data"},
		"a folder":              {filepath.Join(dir, "sub"), "not a regular file"},
		"a device":              {os.DevNull, "not a regular file"},
		"a folder not there":    {filepath.Join(dir, "absent", "out.onnx"), "no such file"},
		"a file for the folder": {filepath.Join(path, "out.onnx"), "not a directory"},
	} {
		err := Write(test.out, m, ExternalDataOver(1000))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.out) {
			t.Errorf("%s: error %v says nothing of %q", name, err, test.want)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the input changed (%v)", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "weights.bin")); err != nil || !bytes.Equal(after, weights) {
		t.Errorf("the weights changed (%v)", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != len(entries) {
		t.Errorf("%d entries became %v (%v)", len(entries), left, err)
	}
}

func TestWriteAsideFails(t *testing.T) {
	dir := t.TempDir()
	full := errors.New("no space left")
	_, err := writeAside(filepath.Join(dir, "out.onnx"), "data", func(w *fileWriter) error {
		w.Write(make([]byte, 1<<20))
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	emptyFolder(t, dir)
}

// TestWriteDeterministic writes the same model twice, over the first output and elsewhere.
func TestWriteDeterministic(t *testing.T) {
	path := writeMessage(t, everything())
	for _, option := range []WriteOption{func(*writeOptions) {}, ExternalDataOver(100)} {
		var first string
		for range 3 {
			m, err := Read(path)
			must(t, err)
			out := filepath.Join(t.TempDir(), "out.onnx")
			must(t, Write(out, m, option))
			must(t, Write(out, m, option)) // replaces the first
			read, err := Read(out)
			must(t, err)
			sameTensors(t, m, read)
			must(t, read.Close())
			must(t, m.Close())
			if first == "" {
				first = out
				continue
			}
			sameFile(t, first, out)
			if _, err := os.Stat(out + ".data"); err == nil {
				sameFile(t, first+".data", out+".data")
			}
		}
	}
}

// TestChangedModel writes a model that was changed after reading.
func TestChangedModel(t *testing.T) {
	p := modelOf(&onnxpb.GraphProto{Name: ptr("g"), Input: valueInfos("x"), Output: valueInfos("z"),
		ValueInfo: valueInfos("y", "dangling"),
		Node:      []*onnxpb.NodeProto{node("y = Abs(x)"), node("z = Relu(y)")}})
	m, err := Read(writeMessage(t, p))
	must(t, err)
	defer m.Close()
	g := m.Graph
	z, y := g.Value("z"), g.Value("y")
	fresh := g.NewValue("y")
	fresh.SetType(Type{DataType: Float, HasShape: true, Dims: []Dim{{Value: 2}, {Value: -1, Param: "n"}}})
	n := g.NewNode("Fused", []*Value{g.Value("x"), nil}, IntAttr("axis", 0), FloatAttr("epsilon", 0),
		RefAttr("r", AttrInt, "outer"))
	g.InsertAt(map[*Node][]*Node{z.Producer: {n}})
	dead := map[*Node]bool{y.Producer: true, z.Producer: true}
	n.TakeOutput(0, z)
	n.TakeOutput(1, fresh)
	must(t, g.RemoveNodes(dead))
	out := filepath.Join(t.TempDir(), "out.onnx")
	for range 2 {
		must(t, Write(out, m))
		q := message(t, out).Graph
		if len(q.Node) != 1 || strings.Join(q.Node[0].Input, ",") != "x," ||
			strings.Join(q.Node[0].Output, ",") != "z,y_1" {
			t.Fatalf("nodes %v", q.Node)
		}
		if len(q.ValueInfo) != 2 || q.ValueInfo[0].GetName() != "dangling" || q.ValueInfo[1].GetName() != "y_1" {
			t.Errorf("value infos %v", q.ValueInfo)
		}
		as := q.Node[0].Attribute
		if as[0].I == nil || as[1].F == nil || as[2].I != nil || as[2].GetRefAttrName() != "outer" {
			t.Errorf("attributes %v", as)
		}
	}
	if !proto.Equal(message(t, out).Graph.Output[0], p.Graph.Output[0]) {
		t.Error("the output's info changed")
	}
}
