package onnx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// strided is a tensor of int32 elements with its elements computed in a simple way, for comparison.
type strided struct {
	t      *Tensor
	values []int32
}

func (s strided) check(t *testing.T) {
	t.Helper()
	want := []byte{}
	for _, v := range s.values {
		want = binary.LittleEndian.AppendUint32(want, uint32(v))
	}
	if got, err := s.t.Bytes(); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s%v: %d bytes, want %d (%v)", s.t.Name, s.t.Dims, len(got), len(want), err)
	}
	var streamed bytes.Buffer
	if err := s.t.WriteElements(&streamed); err != nil || !bytes.Equal(streamed.Bytes(), want) {
		t.Fatalf("%s%v is streamed as %d bytes, want %d (%v)", s.t.Name, s.t.Dims, streamed.Len(), len(want), err)
	}
}

func randomInts(r *rand.Rand, dims ...int64) strided {
	s := strided{}
	n, _ := elementCount(dims)
	raw := []byte{}
	for range n {
		v := r.Int32()
		s.values = append(s.values, v)
		raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
	}
	s.t = &Tensor{Name: "leaf", DataType: Int32, Dims: dims, raw: raw}
	if r.IntN(2) == 0 { // elements in typed fields
		s.t.raw, s.t.proto = nil, &onnxpb.TensorProto{Int32Data: s.values}
	}
	return s
}

// view makes a random view: permuted axes, parts of axes, steps, backwards.
func (s strided) view(t *testing.T, r *rand.Rand) strided {
	rank := len(s.t.Dims)
	row := RowMajor(s.t.Dims)
	var dims, strides []int64
	offset := int64(0)
	for _, axis := range r.Perm(rank) {
		step := int64(1 + r.IntN(2))
		first := int64(r.IntN(int(s.t.Dims[axis])))
		n := (s.t.Dims[axis] - first + step - 1) / step
		if r.IntN(3) == 0 {
			step, n = -1, first+1
		}
		dims, strides = append(dims, n), append(strides, step*row[axis])
		offset += first * row[axis]
	}
	v, err := s.t.View("view", dims, offset, strides)
	must(t, err)
	made := strided{t: v}
	index := make([]int64, rank)
	n, _ := elementCount(dims)
	for range n {
		at := offset
		for i := range index {
			at += index[i] * strides[i]
		}
		made.values = append(made.values, s.values[at])
		for i := rank - 1; i >= 0; i-- {
			if index[i]++; index[i] < dims[i] {
				break
			}
			index[i] = 0
		}
	}
	return made
}

func (s strided) reshape(t *testing.T, dims ...int64) strided {
	v, err := s.t.View("reshaped", dims, 0, nil)
	must(t, err)
	return strided{v, s.values}
}

func (s strided) beside(t *testing.T, o strided, axis int) strided {
	v, err := Concat("concat", axis, []*Tensor{s.t, o.t})
	must(t, err)
	inner := func(t *Tensor) int {
		n, _ := elementCount(t.Dims[axis:])
		return int(n)
	}
	made := strided{t: v}
	a, b := s.values, o.values
	for len(a) > 0 {
		made.values = append(append(made.values, a[:inner(s.t)]...), b[:inner(o.t)]...)
		a, b = a[inner(s.t):], b[inner(o.t):]
	}
	return made
}

// TestAssembled stacks random views and concatenations.
func TestAssembled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lazy := 0
	for range 300 {
		s := randomInts(r, int64(2+r.IntN(7)), int64(2+r.IntN(9)), int64(20+r.IntN(60)))
		for range 1 + r.IntN(4) {
			switch r.IntN(4) {
			case 0:
				s = s.reshape(t, s.t.Dims[1]*s.t.Dims[2], 1, s.t.Dims[0])
			case 1:
				axis := r.IntN(3)
				dims := slices.Clone(s.t.Dims)
				dims[axis] = int64(1 + r.IntN(5))
				s = s.beside(t, randomInts(r, dims...), axis)
			default:
				s = s.view(t, r)
			}
			s.check(t)
		}
		if s.t.assembly != nil {
			lazy++
		}
	}
	if lazy < 100 {
		t.Errorf("only %d of the tensors were assembled when they were read", lazy)
	}
}

func TestLengthened(t *testing.T) {
	x, err := NewTensor("x", Uint8, []int64{2, 2, 1}, []byte{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		axis int
		n    int64
		want []byte
	}{{0, 3, []byte{1, 2, 3, 4, 0, 0}}, {1, 3, []byte{1, 2, 0, 3, 4, 0}}, {2, 2, []byte{1, 0, 2, 0, 3, 0, 4, 0}},
		{1, 2, []byte{1, 2, 3, 4}}, {1, 0, []byte{1, 2, 3, 4}}} {
		y, err := x.Lengthened(c.axis, c.n)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := y.Bytes(); err != nil || !bytes.Equal(b, c.want) || y.Name != "x" {
			t.Errorf("%d along axis %d: %v of %q, want %v (%v)", c.n, c.axis, b, y.Name, c.want, err)
		}
	}
	if _, err := x.Lengthened(3, 2); err == nil {
		t.Error("a tensor of three axes has an axis 3")
	}
}

func TestAssembledRefuses(t *testing.T) {
	leaf := NewFloat32s("w", []int64{4, 6}, make([]float32, 24))
	for name, test := range map[string]struct {
		make func() (*Tensor, error)
		want string
	}{
		"past the end": {func() (*Tensor, error) { return leaf.View("v", []int64{5, 6}, 0, nil) }, "more than the 24"},
		"an offset": {func() (*Tensor, error) { return leaf.View("v", []int64{4, 6}, 1, nil) },
			"elements 1 to 24 of 24"},
		"before it": {func() (*Tensor, error) { return leaf.View("v", []int64{2}, 3, []int64{-4}) },
			"elements -1 to 3"},
		"great strides": {func() (*Tensor, error) {
			return leaf.View("v", []int64{3, 3}, 0, []int64{1 << 62, 1 << 62})
		}, "strides"},
		"few strides": {func() (*Tensor, error) { return leaf.View("v", []int64{3, 3}, 0, []int64{1}) },
			"1 strides for 2 axes"},
		"negative": {func() (*Tensor, error) { return leaf.View("v", []int64{-1}, 0, nil) }, "negative"},
		"types": {func() (*Tensor, error) { return Concat("v", 0, []*Tensor{leaf, NewInt64s("i", []int64{1})}) },
			"int64"},
		"dims": {func() (*Tensor, error) {
			return Concat("v", 0, []*Tensor{leaf, NewFloat32s("x", []int64{4, 5}, make([]float32, 20))})
		}, "does not fit beside"},
		"nothing": {func() (*Tensor, error) { return Concat("v", 0, nil) }, "nothing"},
		"axis":    {func() (*Tensor, error) { return Concat("v", 2, []*Tensor{leaf}) }, "no axis 2"},
		"strings": {func() (*Tensor, error) {
			return stringTensor([]int64{2}, []string{"a", "b"}).View("v", []int64{2}, 0, nil)
		}, "one by one"},
		"half a byte": {func() (*Tensor, error) {
			return (&Tensor{DataType: Int4, Dims: []int64{2}, raw: []byte{1}}).View("v", []int64{2}, 0, nil)
		}, "one by one"},
		"too few elements": {func() (*Tensor, error) {
			return (&Tensor{DataType: Float, Dims: []int64{2}, raw: []byte{1}}).View("v", []int64{2}, 0, nil)
		}, "fewer"},
		"repeats for ever": {func() (*Tensor, error) {
			return leaf.View("v", []int64{1 << 40, 1 << 40}, 0, []int64{0, 0})
		}, "overflow"},
		"a missing file": {func() (*Tensor, error) {
			return (&Tensor{DataType: Float, Dims: []int64{2}, External: &External{Location: "x"}}).View("v",
				[]int64{2}, 0, nil)
		}, "missing"},
		"nothing of a file": {func() (*Tensor, error) { return leaf.View("v", []int64{0, 7}, 0, nil) }, ""},
	} {
		v, err := test.make()
		if test.want == "" {
			if err != nil || v.Size() != 0 {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v says nothing of %q", name, err, test.want)
		}
	}
}

// TestAssembledIsWritten stacks initializers of a file, drops them, and writes the model in every layout.
func TestAssembledIsWritten(t *testing.T) {
	a, b := externalTensor("a", 4000, "location", "weights.bin", "offset", "3"),
		externalTensor("b", 5000, "location", "sub/weights.bin", "offset", "70")
	path, weights := externalModel(t, a, b, externalTensor("kept", 100, "location", "weights.bin"))
	inline := filepath.Join(t.TempDir(), "inline.onnx")
	source, err := Read(path)
	must(t, err)
	packed, err := Concat("packed", 0, []*Tensor{source.Graph.Value("a").Const, source.Graph.Value("b").Const})
	must(t, err)
	want := append(slices.Clone(weights[3:4003]), weights[70:5070]...)
	if got, err := packed.Bytes(); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	own := New(10, 20) // the same with weights in the model file
	for _, name := range []string{"a", "b", "kept"} {
		raw, err := source.Graph.Value(name).Const.Bytes()
		must(t, err)
		w, err := NewTensor(name, Uint8, []int64{int64(len(raw))}, raw)
		must(t, err)
		own.Graph.AddInitializer(w)
	}
	must(t, Write(inline, own))
	must(t, source.Close())
	if _, err := packed.Bytes(); !errors.Is(err, ErrClosed) {
		t.Errorf("read from a closed model: %v", err)
	}
	for name, test := range map[string]struct {
		from    string
		out     string
		data    bool // packed is in the data file
		options []WriteOption
	}{
		"external, beside":    {path, filepath.Join(filepath.Dir(path), "out.onnx"), true, nil},
		"external, elsewhere": {path, filepath.Join(t.TempDir(), "out.onnx"), true, nil},
		"inline":              {inline, filepath.Join(t.TempDir(), "out.onnx"), false, nil},
		"inline, told to a file": {inline, filepath.Join(t.TempDir(), "out.onnx"), true,
			[]WriteOption{ExternalDataOver(1000)}},
		"inline, above the limit": {inline, filepath.Join(t.TempDir(), "out.onnx"), true,
			[]WriteOption{func(o *writeOptions) { o.limit = 5000 }}},
		"external, above the rest": {path, filepath.Join(filepath.Dir(path), "more.onnx"), true,
			[]WriteOption{ExternalDataOver(100000)}},
	} {
		m, err := Read(test.from)
		must(t, err)
		g := m.Graph
		va, vb := g.Value("a"), g.Value("b")
		packed, err := Concat("packed", 0, []*Tensor{va.Const, vb.Const})
		must(t, err)
		g.AddInitializer(packed)
		g.RemoveUnusedInitializers(map[*Value]bool{va: true, vb: true})
		for range 2 { // twice: the first must not change the model
			must(t, Write(test.out, m, test.options...))
			again, err := Read(test.out)
			must(t, err)
			w, kept := again.Graph.Value("packed").Const, again.Graph.Value("kept").Const
			if got, err := w.Bytes(); err != nil || !bytes.Equal(got, want) || (w.External != nil) != test.data ||
				again.Graph.Value("a") != nil {
				t.Errorf("%s: %d bytes, %v, external %v", name, len(got), err, w.External)
			}
			if got, err := kept.Bytes(); err != nil || !bytes.Equal(got, weights[:100]) {
				t.Errorf("%s: kept: %d bytes, %v", name, len(got), err)
			}
			must(t, again.Close())
		}
		if err := Write(filepath.Join(filepath.Dir(test.from), "weights.bin"), m); test.from == path &&
			(err == nil || !strings.Contains(err.Error(), "holds external data")) {
			t.Errorf("%s: its source can be overwritten: %v", name, err)
		}
		must(t, m.Close())
	}
}

// TestAssembledSourceFails cannot read a source when the model is written. No output may remain.
func TestAssembledSourceFails(t *testing.T) {
	path, _ := externalModel(t, externalTensor("a", 4000, "location", "weights.bin"),
		externalTensor("b", 4000, "location", "sub/weights.bin"))
	m, err := Read(path)
	must(t, err)
	defer m.Close()
	packed, err := Concat("packed", 0, []*Tensor{m.Graph.Value("a").Const, m.Graph.Value("b").Const})
	must(t, err)
	m.Graph.RemoveUnusedInitializers(map[*Value]bool{m.Graph.Value("a"): true, m.Graph.Value("b"): true})
	m.Graph.AddInitializer(packed)
	must(t, os.Truncate(filepath.Join(filepath.Dir(path), "sub/weights.bin"), 10))
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "out.onnx"), m); err == nil ||
		!strings.Contains(err.Error(), "shrunk to 10 bytes") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestAssembledTakesNoMemory packs 480 MB of weights into one initializer.
func TestAssembledTakesNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes files of 1 GB (sparse, and not)")
	}
	m, err := Read(largeModel(t))
	must(t, err)
	defer m.Close()
	var weights []*Tensor
	for _, v := range m.Graph.Initializers() {
		weights = append(weights, v.Const)
	}
	packed, err := Concat("packed", 1, weights) // row by row
	must(t, err)
	m.Graph.AddInitializer(packed)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	debug.FreeOSMemory()
	before := rssAnon()
	out := filepath.Join(t.TempDir(), "out.onnx")
	must(t, Write(out, m, ExternalDataOver(10<<20)))
	if used := rssAnon() - before; used > 30<<20 {
		t.Errorf("writing took %d MB of private memory", used>>20)
	}
	again, err := Read(out)
	must(t, err)
	defer again.Close()
	b, err := again.Graph.Value("packed").Const.Bytes()
	must(t, err)
	for i := range weights {
		if got := b[4*1024*i : 4*1024*i+4]; got[0] != byte(i) || got[3] != 3 {
			t.Fatalf("row 0 of weight %d begins with %v", i, got)
		}
	}
}
