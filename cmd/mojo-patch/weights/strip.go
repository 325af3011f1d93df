package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/spf13/cobra"
)

func newWeightsStrip(a *cli.App) *cobra.Command {
	var out string
	o := weights.StripOptions{}
	c := &cobra.Command{
		Use:   "strip MODEL -o GRAPH",
		Short: "Write a model's graph without its weights",
		Long: `strip replaces the weights of a model by references to external data that is absent, with offset
and length, and writes the rest: a small file that weights load fills again. It replaces
initializers over a size that are parameters of modules, by their names or by the nodes that read
them. Integers, which may be shapes, stay. Constants that an exporter computed, such as tables of
cosines, also stay, since no checkpoint has them; --all removes them too. Initializers that share
their elements refer to one place.`,
		Example: `  mojo-patch weights strip model.onnx -o graph.onnx
  mojo-patch weights strip model.onnx -o graph.onnx --over 65536 --json`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return stripWeights(a, args[0], out, o)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "file to write")
	c.Flags().Int64Var(&o.Over, "over", 4096, "keep initializers of up to this many bytes")
	c.Flags().BoolVar(&o.All, "all", false, "also remove constants that are not parameters of modules")
	c.Flags().StringVar(&o.Location, "location", "",
		"file that the references name (default: GRAPH with .weights.bin for .onnx)")
	cli.CompleteFile(c, "output", "onnx")
	a.JSONFlag(c, "weights-strip")
	return c
}

func stripWeights(a *cli.App, model, out string, o weights.StripOptions) error {
	switch {
	case out == "":
		return errors.New("-o GRAPH is missing")
	case cli.Same(model, out):
		return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", out)
	case o.Over < 0:
		return fmt.Errorf("--over %d: must be a number of bytes, 0 or more", o.Over)
	}
	if o.Location == "" {
		o.Location = strings.TrimSuffix(filepath.Base(out), ".onnx") + ".weights.bin"
	}
	if !filepath.IsLocal(o.Location) || filepath.Clean(o.Location) == "." {
		return fmt.Errorf("--location %s is not in the graph's folder", o.Location)
	}
	if there := filepath.Join(filepath.Dir(out), o.Location); exists(there) {
		return fmt.Errorf("%s exists, and the graph would refer to it for its weights: choose another name with "+
			"--location", there)
	}
	if err := cli.Writable(out); err != nil {
		return err
	}
	m, err := a.Read(model)
	if err != nil {
		return err
	}
	defer m.Close()
	r, err := weights.Strip(m, o)
	if err != nil {
		return err
	}
	r.Model, r.Output = model, out
	if r.Before, err = m.Size(); err != nil {
		return err
	}
	if err := onnx.Write(out, m); err != nil {
		return err
	}
	written, err := a.Read(out, onnx.AllowMissingData())
	if err != nil {
		return err
	}
	defer written.Close()
	if r.After, err = written.Size(); err != nil {
		return err
	}
	if err := a.Result(r); err != nil {
		return err
	}
	for _, s := range r.Stripped {
		a.Detail("removed %s %s%v, %d bytes", s.Name, s.DataType, s.Shape, s.Length)
	}
	for _, k := range r.Kept {
		a.Say("kept %s %s%v, %d bytes: not a parameter of a module (use --all to remove "+
			"it)", k.Name, k.DataType, k.Shape,
			k.Length)
	}
	a.Say("wrote %s: %s, before %s; removed %s, %s", out, english.Bytes(r.After), english.Bytes(r.Before),
		cli.Counted(len(r.Stripped), "tensor"), english.Bytes(r.Bytes))
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
