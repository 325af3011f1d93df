package planning

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// opener opens patched models in onnxruntime, with its default options, before they are written.
type opener struct {
	lib     ort.Library
	options []ort.Option
}

// newOpener registers the kernel library if there is one. Without it, the model runs on the definitions of its ops.
func newOpener(lib ort.Library, kernels string, fusedOps bool) *opener {
	// The model does not run, so its weights need no packing.
	o := &opener{lib, []ort.Option{ort.WithLibrary(lib.Path), ort.WithThreads(1),
		ort.WithConfig("session.disable_prepacking", "1")}}
	if path, err := fused.CPU.FindLibrary(kernels); fusedOps && err == nil {
		o.options = append(o.options, ort.WithKernelLibrary(path))
	}
	return o
}

// mostOpened is the node count up to which a patched model is opened. onnxruntime's time grows faster than the model,
// to half a minute for 100,000 nodes.
const mostOpened = 30000

// check opens a model made from the one at path. If neither opens, or the model has too many nodes, the report says so
// and check returns no error: the model may be for another runtime, or for one with more ops.
func (o *opener) check(a *cli.App, m *onnx.Model, path string, options ...onnx.ReadOption) (*rewrite.RuntimeReport,
	error) {
	r := &rewrite.RuntimeReport{Name: "onnxruntime", Version: o.lib.Version}
	nodes := 0
	for _, g := range m.Graphs() {
		nodes += len(g.Nodes)
	}
	if nodes > mostOpened {
		r.Reason = fmt.Sprintf("the patched model has %d nodes; only models of up to %d are opened", nodes, mostOpened)
		a.Say("not opened in onnxruntime: %s", r.Reason)
		return r, nil
	}
	err := o.open(m)
	if r.Opened = err == nil; r.Opened {
		a.Detail("opened in onnxruntime %s", o.lib.Version)
		return r, nil
	}
	r.Reason = err.Error()
	if slices.ContainsFunc(m.Graph.Nodes, target.OnlyOnCUDA) && lacksKernel(r.Reason) {
		a.Say("not opened in onnxruntime: its CPU provider has no kernel: %s", cli.FirstLine(err))
		return r, nil
	}
	before, readErr := a.Read(path, options...)
	if readErr != nil {
		return r, readErr
	}
	defer before.Close()
	if o.open(before) == nil {
		return r, cli.Failed(fmt.Errorf("the patched model was not written: %w\n(onnxruntime opens %s; use "+
			"--check-kernels off to write "+
			"the patched one without opening it)", err, path))
	}
	a.Say("not tried: %s\n  onnxruntime does not open %s either", err, path)
	return r, nil
}

// lacksKernel reports whether onnxruntime's error is that its CPU provider has no kernel for a valid node. onnxruntime
// 1.30 first puts casts around float16 nodes, and then refuses the type behind a cast.
func lacksKernel(text string) bool {
	return strings.Contains(text, "find an implementation") || strings.Contains(text, "InsertedPrecisionFreeCast")
}

// largeWeight is the size in bytes from which weights are not read to open a model.
const largeWeight = 1 << 16

// open opens a copy of the model whose large weights are zeros in one sparse file.
func (o *opener) open(m *onnx.Model) error {
	c, err := m.Clone()
	if err != nil {
		return err
	}
	c.Path = "" // its references are not relative to a file
	dir, err := os.MkdirTemp("", "mojo-patch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const zeros = "zeros"
	change := new(edit.Change)
	var most int64
	for _, g := range c.Graphs() {
		for _, v := range g.Initializers() {
			t, err := withoutWeight(v.Const, zeros)
			if err != nil {
				return err
			}
			change.SetConst(v, t)
			if v.Const.External != nil {
				most = max(most, v.Const.Size())
			}
		}
	}
	f, err := os.Create(filepath.Join(dir, zeros))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(most), f.Close()); err != nil {
		return err
	}
	if err := keepUnfolded(change, c.Graph); err != nil {
		return err
	}
	b, err := onnx.Marshal(c)
	if err != nil {
		return err
	}
	s, err := ort.OpenBytes(b, "", append(slices.Clone(o.options),
		ort.WithConfig("session.model_external_initializers_file_folder_path", dir))...)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "model in memory: "))
	}
	return s.Close()
}

// largeFolded is the size in bytes from which onnxruntime may not fold a weight into another one.
const largeFolded = 1 << 20

// keepUnfolded turns the large weights of nodes that only read constants into inputs. Otherwise onnxruntime would
// compute and keep the nodes' results when it opens the model. DequantizeLinear is not folded, but fusions look for it.
func keepUnfolded(c *edit.Change, g *onnx.Graph) error {
	for _, n := range g.Nodes {
		if n.Is("DequantizeLinear") || slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
			return v != nil && v.Constant() == nil
		}) {
			continue
		}
		for i, v := range n.Inputs {
			if !v.IsConstant() || v.Graph != g || v.Const.Size() <= largeFolded {
				continue
			}
			t := onnx.Type{DataType: v.Const.DataType, HasShape: true}
			for _, d := range v.Const.Dims {
				t.Dims = append(t.Dims, onnx.Dim{Value: d})
			}
			c.SetInput(n, i, c.AddInput(g, v.Name+"_unfolded", t))
			c.DropConstants(v)
		}
	}
	return c.Finish()
}

// withoutWeight returns a tensor whose elements, if large or missing, are in a file of zeros.
func withoutWeight(t *onnx.Tensor, zeros string) (*onnx.Tensor, error) {
	size := t.Size()
	if t.DataType == onnx.String {
		return t, nil
	}
	if size <= largeWeight { // perhaps assembled from weights in other files
		b, err := t.Bytes()
		if err == nil {
			return onnx.NewTensor(t.Name, t.DataType, t.Dims, b)
		}
		if !errors.Is(err, onnx.ErrMissingData) {
			return nil, err
		}
	}
	return onnx.NewReference(t.Name, t.DataType, t.Dims, onnx.External{Location: zeros, Length: size})
}
