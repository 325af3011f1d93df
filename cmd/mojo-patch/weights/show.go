package weights

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/llm/weights/statistics"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/quantize"
	"github.com/spf13/cobra"
)

// shownTensor is a tensor in the JSON of weights show.
type shownTensor struct {
	Name  string           `json:"name"`
	Type  string           `json:"type"`
	Shape []int64          `json:"shape"`
	Bytes int64            `json:"bytes"`
	File  string           `json:"file"`
	Bits  float64          `json:"bits,omitempty"`       // per element
	Lacks string           `json:"missing_in,omitempty"` // the missing file of external data
	Stats *shownStatistics `json:"statistics,omitempty"`
	Error *shownError      `json:"error,omitempty"` // against another model

	elements   int64
	statistics func() (*statistics.Statistics, error)
	// dims and read are the shape and elements in the layout of products.
	rows func() (dims []int64, read func(dst []float32, first int64) error, err error)
}

// shownError is the distance of a tensor from the tensor of the same name in another model.
type shownError struct {
	RMS    float64 `json:"relative_rms"`
	Cosine float64 `json:"cosine"`
}

type shownStatistics struct {
	Min   golden.Number `json:"min"`
	Max   golden.Number `json:"max"`
	Mean  golden.Number `json:"mean"`
	Std   golden.Number `json:"std"`
	Zeros int64         `json:"zeros"`
	NaN   int64         `json:"nan"`
	Inf   int64         `json:"inf"`
}

// shownTotal sums up the tensors of one type, or all.
type shownTotal struct {
	Type     string `json:"type,omitempty"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

func newWeightsShow(a *cli.App) *cobra.Command {
	var noStats bool
	var name, against string
	c := &cobra.Command{
		Use:   "show FILE...",
		Short: "List tensors with sizes, types and statistics",
		Long: `show lists the initializers of a model (.onnx) or the tensors of a checkpoint (.gguf, .safetensors,
the index of such files, or a folder of them): name, type, shape, bytes and bits an element; the
minimum, maximum, mean and standard deviation of the finite elements; and how many are zero, NaN and
infinite. It dequantizes quantized types for that; a quantized matrix of a model (weights load
--keep-quantized, quantize) is one line, in its format. --no-stats reads only headers.

--against names a model whose tensors of the same names are the originals, such as the model that
quantize read. show then also lists the relative RMS error and the cosine.`,
		Example: `  mojo-patch weights show model.onnx
  mojo-patch weights show model.gguf --name 'blk\.0\.'
  mojo-patch weights show small.onnx --no-stats --against model.onnx
  mojo-patch weights show checkpoint/ --no-stats --json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("show needs one or more files\nusage: %s", c.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			filter, err := regexp.Compile(name)
			if err != nil {
				return fmt.Errorf("--name: %w", err)
			}
			return showWeights(a, args, filter, !noStats, against)
		},
	}
	c.Flags().BoolVar(&noStats, "no-stats", false, "read headers only, no elements")
	c.Flags().StringVar(&against, "against", "", "model to compare with: its tensors of the same names are the "+
		"expected values")
	cli.CompleteFile(c, "against", "onnx")
	c.Flags().StringVar(&name, "name", "", "list only tensors whose names match this regular expression")
	a.JSONFlag(c, "weights-show")
	return c
}

func showWeights(a *cli.App, files []string, filter *regexp.Regexp, stats bool, against string) error {
	var list []*shownTensor
	for _, path := range files {
		found, closeFile, err := tensorsOf(a, path)
		if err != nil {
			return err
		}
		defer closeFile()
		list = append(list, found...)
	}
	list = slices.DeleteFunc(list, func(t *shownTensor) bool { return !filter.MatchString(t.Name) })
	if stats {
		if err := takeStatistics(a, list); err != nil {
			return err
		}
	}
	for _, t := range list {
		if t.elements > 0 {
			t.Bits = 8 * float64(t.Bytes) / float64(t.elements)
		}
	}
	if against != "" {
		if err := compareWeights(a, list, against); err != nil {
			return err
		}
	}
	total, types := totals(list)
	if a.JSON {
		return a.PrintJSON(ShownWeights{cli.JSONSchema, files, append([]*shownTensor{}, list...), total, types})
	}
	header := []string{"name", "type", "shape", ">bytes", ">bits"}
	if against != "" {
		header = append(header, ">relative RMS", ">cosine")
	}
	if stats {
		header = append(header, ">min", ">max", ">mean", ">std", ">zeros", ">NaN", ">Inf")
	}
	lacking := slices.ContainsFunc(list, func(t *shownTensor) bool { return t.Lacks != "" })
	if lacking {
		header = append(header, "")
	}
	t := cli.NewTable(header...)
	for _, s := range list {
		row := []any{s.Name, s.Type, s.Shape, s.Bytes, bitsText(s.Bits)}
		if s.Error != nil {
			row = append(row, fmt.Sprintf("%.4f", s.Error.RMS), fmt.Sprintf("%.6f", s.Error.Cosine))
		} else if against != "" {
			row = append(row, "", "")
		}
		switch x := s.Stats; {
		case x != nil:
			row = append(row, cli.Figure(x.Min), cli.Figure(x.Max), cli.Figure(x.Mean), cli.Figure(x.Std), x.Zeros,
				x.NaN, x.Inf)
		case stats:
			row = append(row, "", "", "", "", "", "", "")
		}
		if s.Lacks != "" {
			row = append(row, "missing: "+s.Lacks)
		}
		t.Add(row...)
	}
	t.Write(a.Out)
	var kinds []string
	for _, k := range types {
		kinds = append(kinds, fmt.Sprintf("%d %s", k.Tensors, k.Type))
	}
	fmt.Fprintf(a.Out, "%s (%s), %d elements, %s\n", cli.Counted(total.Tensors, "tensor"), strings.Join(kinds, ", "),
		total.Elements, english.Bytes(total.Bytes))
	return nil
}

// tensorsOf lists the tensors of a model or a checkpoint.
func tensorsOf(a *cli.App, path string) (list []*shownTensor, closeFile func() error, err error) {
	if !strings.HasSuffix(path, ".onnx") {
		c, err := checkpoint.Open(path)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range c.Tensors {
			s := &shownTensor{Name: t.Name, Type: t.Type, Shape: append([]int64{}, t.Dims...),
				Bytes: t.Size, File: t.Path, elements: t.Len()}
			if t.Readable {
				s.statistics = t.Statistics
			}
			list = append(list, s)
		}
		return list, c.Close, nil
	}
	m, err := a.Read(path, onnx.AllowMissingData())
	if err != nil {
		return nil, nil, err
	}
	matrices := map[*onnx.Value][]*weights.Matrix{}
	for _, x := range weights.Matrices(m) {
		for _, v := range x.Arrays {
			matrices[v] = append(matrices[v], x)
		}
	}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			if all := matrices[v]; len(all) > 0 && all[0].Format != "" {
				for _, x := range all {
					if v == x.Arrays[0] {
						list = append(list, shownMatrix(x, path))
					}
				}
				continue
			}
			t := v.Const
			s := &shownTensor{Name: v.Name, Type: t.DataType.String(), Shape: append([]int64{}, t.Dims...),
				Bytes: max(t.Size(), 0), File: path, elements: max(t.Len(), 0)}
			s.statistics = func() (*statistics.Statistics, error) { return statistics.Of(t) }
			s.rows = func() ([]int64, func([]float32, int64) error, error) { return quantize.Rows(v) }
			if _, err := t.Bytes(); t.External != nil && errors.Is(err, onnx.ErrMissingData) {
				s.Lacks, s.statistics, s.rows = t.External.Location, nil, nil
			}
			list = append(list, s)
		}
	}
	return list, m.Close, nil
}

// shownMatrix returns one line for the arrays of a quantized matrix.
func shownMatrix(x *weights.Matrix, path string) *shownTensor {
	s := &shownTensor{Name: x.Name, Type: x.Format, Shape: []int64{x.N, x.K}, Bytes: x.Size(), File: path,
		elements: x.Len(), statistics: x.Statistics}
	s.rows = func() ([]int64, func([]float32, int64) error, error) {
		read, err := x.Elements()
		return s.Shape, read, err
	}
	for _, v := range x.Arrays {
		if v == nil {
			continue
		}
		if _, err := v.Const.Bytes(); v.Const.External != nil && errors.Is(err, onnx.ErrMissingData) {
			s.Lacks, s.statistics, s.rows = v.Const.External.Location, nil, nil
		}
	}
	return s
}

func takeStatistics(a *cli.App, list []*shownTensor) error {
	step, end := a.Progress("reading tensor")
	defer end()
	for i, t := range list {
		if t.statistics != nil {
			s, err := t.statistics()
			if err != nil {
				return err
			}
			if s != nil {
				t.Stats = &shownStatistics{golden.Number(s.Min), golden.Number(s.Max), golden.Number(s.Mean),
					golden.Number(s.Std), s.Zeros, s.NaN, s.Inf}
			}
		}
		step(i+1, len(list))
	}
	return nil
}

// compareWeights computes how far tensors are from those of the same names in another model, both in the layout of
// products, so that one may be transposed. It skips tensors that are missing there or have another shape.
func compareWeights(a *cli.App, list []*shownTensor, path string) error {
	others, closeFile, err := tensorsOf(a, path)
	if err != nil {
		return err
	}
	defer closeFile()
	by := map[string]*shownTensor{}
	for _, t := range others {
		by[t.Name] = t
	}
	compared := 0
	for _, t := range list {
		other := by[t.Name]
		if other == nil || t.rows == nil || other.rows == nil {
			continue
		}
		dims, is, err := t.rows()
		wanted, was, errOther := other.rows()
		if err != nil || errOther != nil || !slices.Equal(dims, wanted) {
			continue
		}
		t.Error = &shownError{}
		if t.Error.RMS, t.Error.Cosine, err = quantize.Compare(t.elements, was, is); err != nil {
			return fmt.Errorf("%s, tensor %q: %w", path, t.Name, err)
		}
		compared++
	}
	if compared == 0 {
		return fmt.Errorf("--against %s: no float tensor in it has the name and shape of a listed one", path)
	}
	return nil
}

// bitsText formats bits per element, without a zero fraction.
func bitsText(bits float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.2f", bits), ".00")
}

func totals(list []*shownTensor) (total shownTotal, types []*shownTotal) {
	types = []*shownTotal{}
	for _, t := range list {
		i := slices.IndexFunc(types, func(k *shownTotal) bool { return k.Type == t.Type })
		if i < 0 {
			i = len(types)
			types = append(types, &shownTotal{Type: t.Type})
		}
		for _, sum := range []*shownTotal{&total, types[i]} {
			sum.Tensors++
			sum.Elements += t.elements
			sum.Bytes += t.Bytes
		}
	}
	return total, types
}

// ShownWeights is the result of weights show.
type ShownWeights struct {
	Schema  int            `json:"schema"`
	Files   []string       `json:"files"`
	Tensors []*shownTensor `json:"tensors"`
	Total   shownTotal     `json:"total"`
	Types   []*shownTotal  `json:"types"`
}
