package onnx

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
	"google.golang.org/protobuf/proto"
)

// pageSize is the alignment of tensors in a data file, so that runtimes can map them one by one.
const pageSize = 4096

// layout decides where the parts of a model are written. While it exists, the model's TensorProtos hold placeholders
// instead of weights, and the external_data entries of the new files. restore undoes that.
type layout struct {
	size           int64 // of the model file
	path, dataPath string
	message        *onnxpb.ModelProto
	sources        map[*externalFiles]bool // the sources of the model's tensors
	walk           *wire.Walk              // the encoded model without its weights
	inline         []inlineEntry           // the weights that stay in the model file
	data           []dataEntry             // the entries of the data file, sorted by offset once placed
	dataEnd        int64
	moved          []movedTensor // the tensors that refer to the data file
	weights        DataWritten   // the origins of the data file's bytes, once it is written

	owners map[*onnxpb.TensorProto]*Tensor
	whole  map[*deferral]bool // deferred tensors of the model; views of their beginning share their entry
	entry  map[dataKey]int    // indices into data
	common *commonData        // the data file if several models share it
	undo   []func()
}

// inlineEntry is the contents of a raw_data field: bytes, or the elements of an assembled or deferred tensor.
type inlineEntry struct {
	raw  []byte
	made *Tensor
}

func (e inlineEntry) size() int {
	if e.made != nil {
		return int(e.made.Size())
	}
	return len(e.raw)
}

func (e inlineEntry) writeTo(w io.Writer) error {
	if e.made != nil {
		return e.made.WriteElements(w)
	}
	_, err := w.Write(e.raw)
	return err
}

// dataEntry is one tensor in the data file. The system copies the bytes of an external file directly. Elements in typed
// fields are converted, and assembled or deferred ones computed, when they are written.
type dataEntry struct {
	offset, size int64
	bytes        func() ([]byte, error)
	made         *Tensor       // instead of bytes
	source       *externalFile // instead of bytes, with its owner
	sourceFiles  *externalFiles
	sourceOffset int64
}

// movedTensor is a tensor whose elements are in the data file.
type movedTensor struct {
	proto  *onnxpb.TensorProto
	entry  int   // its index in data
	inside int64 // its offset in that entry
	size   int64
}

// dataKey identifies tensors that share their elements: tied weights, stored once.
type dataKey struct {
	first    *byte         // for elements in memory
	source   *externalFile // for other elements
	deferred *deferral     // for deferred tensors
	offset   int64
	size     int64
}

// tensorChoice reports whether the elements of a tensor go to the data file.
type tensorChoice func(size int64, initializer bool) bool

func newLayout(path string, m *Model, o writeOptions) (*layout, error) {
	l := unplaced(path, m)
	over := func(n int64, attributes bool) tensorChoice {
		return func(size int64, initializer bool) bool { return size > n && (initializer || attributes) }
	}
	choices := []tensorChoice{over(o.externalOver, false)}
	if o.externalOver < 0 {
		choices = []tensorChoice{over(o.limit, false), over(smallTensor, false)}
		choices[0] = func(int64, bool) bool { return false }
	}
	choices = append(choices, over(smallTensor, true))
	var total int64
	for _, choice := range choices {
		err := l.arrange(choice)
		if err == nil {
			l.placeData()
			total, err = l.encode(filepath.Base(l.dataPath))
		}
		if err != nil {
			l.restore()
			return nil, err
		}
		if total <= o.limit {
			l.size = total
			return l, nil
		}
		l.restore()
	}
	return nil, fmt.Errorf("the model takes %d bytes even without its weights, more than the %d that other tools read",
		total, o.limit)
}

// unplaced returns the layout of a model before it is arranged.
func unplaced(path string, m *Model) *layout {
	l := &layout{
		message: m.message(),
		path:    path, dataPath: path + ".data",
		sources: map[*externalFiles]bool{m.files: true},
		owners:  make(map[*onnxpb.TensorProto]*Tensor, len(m.Graph.initializers)),
		whole:   map[*deferral]bool{},
	}
	m.eachTensor(func(t *Tensor) {
		l.owners[t.proto] = t
		if t.deferred != nil {
			l.whole[t.deferred] = true
		}
		for _, s := range t.Sources() {
			l.sources[s.files] = true
		}
	})
	return l
}

// arrange puts placeholders and references into the messages.
func (l *layout) arrange(choice tensorChoice) error {
	l.inline, l.data, l.dataEnd, l.moved, l.entry = nil, nil, 0, nil, map[dataKey]int{}
	folder, err := os.Stat(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	kept := map[*externalFiles]bool{} // those whose references stay valid
	for f := range l.sources {
		if f != nil && f.isClosed() {
			return ErrClosed // its weights are no longer mapped
		}
		if f != nil && f.dir != "" {
			info, err := os.Stat(f.dir)
			kept[f] = err == nil && os.SameFile(info, folder)
		}
	}
	done := make(map[*onnxpb.TensorProto]bool, len(l.owners)) // a tensor may occur twice
	wire.Tensors(func(tp *onnxpb.TensorProto, initializer bool) {
		if err != nil || done[tp] {
			return
		}
		done[tp] = true
		t := l.owners[tp]
		switch {
		case t == nil && tp.GetDataLocation() == onnxpb.TensorProto_EXTERNAL: // of a sparse tensor moved here
			err = fmt.Errorf("tensor %q refers to external data of another model", tp.GetName())
		case t == nil:
			if tp.RawData != nil {
				l.keep(tp)
			}
		case t.External != nil && t.files != nil && mayBeShape(t) && !t.files.absent(t):
			err = l.bringIn(tp, t)
		case t.External != nil && (t.reference || kept[t.files] || t.files.absent(t)):
			if tp.RawData != nil { // meaningless beside a reference, but part of the file
				l.keep(tp)
			}
		case t.External != nil:
			err = l.move(tp, t)
		case t.DataType != String && !mayBeShape(t) && choice(l.inlineSize(tp, t), initializer):
			err = l.move(tp, t)
		case t.isFromFiles() && initializer && !mayBeShape(t): // the exporter stored them externally
			err = l.move(tp, t)
		case t.isMade():
			l.keepMade(tp, t)
		case tp.RawData != nil:
			l.keep(tp)
		}
	}).Model(l.message)
	return err
}

// encode encodes the arranged messages with references to a data file of this name, and returns the length of the model
// file.
func (l *layout) encode(dataName string) (int64, error) {
	for _, t := range l.moved {
		t.proto.ExternalData = externalEntries(&External{Location: dataName,
			Offset: l.data[t.entry].offset + t.inside, Length: t.size})
	}
	rest, err := proto.MarshalOptions{Deterministic: true}.Marshal(l.message)
	if err != nil {
		return 0, fmt.Errorf("cannot encode the model: %w", err)
	}
	walk, total, err := wire.Join(rest, func(k int) int { return l.inline[k].size() })
	l.walk = walk
	return int64(total), err
}

// dataFiles lists the files with external data that the messages refer to, sorted.
func (l *layout) dataFiles() []string {
	var paths []string
	locations := map[string]bool{}
	wire.Tensors(func(tp *onnxpb.TensorProto, _ bool) {
		if tp.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
			return
		}
		e, err := parseExternal(tp)
		if err != nil || locations[e.Location] {
			return
		}
		locations[e.Location] = true
		file := filepath.Join(filepath.Dir(l.path), filepath.FromSlash(e.Location))
		if !slices.Contains(paths, file) {
			paths = append(paths, file)
		}
	}).Model(l.message)
	slices.Sort(paths)
	return paths
}

// inlineSize returns the number of bytes that would leave the model file, 0 if the tensor has no known elements.
func (l *layout) inlineSize(tp *onnxpb.TensorProto, t *Tensor) int64 {
	if t.raw == nil && !t.isMade() && !hasTypedData(tp) {
		return 0
	}
	return t.Size()
}

// mayBeShape reports whether a tensor may hold a shape, axes or similar. Shape inference, including onnxruntime's,
// rejects models with such a tensor in a data file, so models whose exporter put it there cannot be loaded.
func mayBeShape(t *Tensor) bool {
	size := t.Size()
	return (t.DataType == Int64 || t.DataType == Int32) && size >= 0 && size <= smallTensor
}

// bringIn moves a tensor from its data file to the model file.
func (l *layout) bringIn(tp *onnxpb.TensorProto, t *Tensor) error {
	b, err := t.Bytes()
	if err != nil {
		return err
	}
	raw, external, location := tp.RawData, tp.ExternalData, tp.DataLocation
	l.undo = append(l.undo, func() { tp.RawData, tp.ExternalData, tp.DataLocation = raw, external, location })
	tp.ExternalData, tp.DataLocation, tp.RawData = nil, nil, b
	l.keep(tp)
	return nil
}

// keep keeps raw_data in the model file.
func (l *layout) keep(tp *onnxpb.TensorProto) {
	raw := tp.RawData
	l.undo = append(l.undo, func() { tp.RawData = raw })
	tp.RawData = wire.Placeholder(len(l.inline))
	l.inline = append(l.inline, inlineEntry{raw: raw})
}

// keepMade stores the elements of an assembled or deferred tensor in the model file.
func (l *layout) keepMade(tp *onnxpb.TensorProto, t *Tensor) {
	l.undo = append(l.undo, func() { tp.RawData = nil })
	tp.RawData = wire.Placeholder(len(l.inline))
	l.inline = append(l.inline, inlineEntry{made: t})
}

// move moves the tensor to the data file. Mapped bytes are fetched now, which costs nothing; elements that need
// conversion are fetched when they are written.
func (l *layout) move(tp *onnxpb.TensorProto, t *Tensor) error {
	saved := &onnxpb.TensorProto{RawData: tp.RawData, ExternalData: tp.ExternalData, DataLocation: tp.DataLocation,
		FloatData: tp.FloatData, Int32Data: tp.Int32Data, Int64Data: tp.Int64Data, DoubleData: tp.DoubleData,
		Uint64Data: tp.Uint64Data}
	at, inside, err := 0, int64(0), error(nil)
	switch {
	case t.Size() < 0:
		err = fmt.Errorf("tensor %q: %s%v has no size", t.Name, t.DataType, t.Dims)
	case l.common != nil:
		at, inside, err = l.common.use(t)
	default:
		at, err = l.entryOf(t, saved)
	}
	if err != nil {
		return err
	}
	l.undo = append(l.undo, func() {
		tp.RawData, tp.ExternalData, tp.DataLocation = saved.RawData, saved.ExternalData, saved.DataLocation
		tp.FloatData, tp.Int32Data, tp.Int64Data = saved.FloatData, saved.Int32Data, saved.Int64Data
		tp.DoubleData, tp.Uint64Data = saved.DoubleData, saved.Uint64Data
	})
	tp.RawData, tp.FloatData, tp.Int32Data, tp.Int64Data, tp.DoubleData, tp.Uint64Data = nil, nil, nil, nil, nil, nil
	tp.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	l.moved = append(l.moved, movedTensor{proto: tp, entry: at, inside: inside, size: t.Size()})
	return nil
}

// entryOf returns the index of the data file's entry with the elements of a tensor, whose message is saved.
func (l *layout) entryOf(t *Tensor, saved *onnxpb.TensorProto) (int, error) {
	e := dataEntry{size: t.Size(), bytes: func() ([]byte, error) {
		b, err := typedBytes(saved, t.DataType)
		if err == nil && int64(len(b)) != t.Size() {
			err = fmt.Errorf("%s%v takes %d bytes, but its fields hold %d", t.DataType, t.Dims, t.Size(), len(b))
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		return b, nil
	}}
	key := dataKey{}
	switch {
	case t.External != nil && t.files != nil:
		x, _, err := t.files.place(t)
		if err != nil {
			return 0, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		e.source, e.sourceFiles, e.sourceOffset = x, t.files, t.External.Offset
		key = dataKey{source: x, offset: e.sourceOffset, size: e.size}
	case t.isMade():
		e.made = t
		whole := t
		if from := t.beginsOf(); from != nil && l.whole[from.deferred] {
			whole = from
		}
		if whole.deferred != nil {
			e.made, e.size = whole, whole.Size()
			key = dataKey{deferred: whole.deferred, size: e.size}
		}
	case t.External != nil || t.raw != nil:
		b, err := t.Bytes()
		if err != nil {
			return 0, err
		}
		e.bytes = func() ([]byte, error) { return b, nil }
		key = dataKey{first: unsafe.SliceData(b), size: int64(len(b))}
	}
	at, tied := l.entry[key]
	if !tied || key.size == 0 {
		at = len(l.data)
		l.data = append(l.data, e)
		l.entry[key] = at
	}
	return at, nil
}

// restore restores the contents of the messages.
func (l *layout) restore() {
	for i := len(l.undo) - 1; i >= 0; i-- {
		l.undo[i]()
	}
	l.undo = nil
}

func (l *layout) writeModel(w *fileWriter) error {
	return l.walk.WriteTo(w.Writer, func(out io.Writer, k int) error {
		return l.inline[wire.PlaceholderIndex(l.walk.Raws[k])].writeTo(out)
	})
}
