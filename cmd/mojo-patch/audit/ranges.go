package audit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prompts"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/mojo-patch/mojo-patch/trace/ranges"
	"github.com/spf13/cobra"
)

const rangesHelp = `--ranges instead runs the model in float32 and reports the range of its values, value by value and
block by block: the greatest magnitude, the share of elements beyond 65504 and below float16's
smallest subnormal, the error of rounding to float16 and to bfloat16, and the first value in the order
of execution that overflows float16. It runs on --inputs (recorded cases, or a recorded generation as
for generate --golden), on --prompt through the tokenizer, or on the pieces of a --text; without these
on random inputs, which say little. A model in half precision is widened first. Values that mask
scores, far below zero and read only by a Softmax, are counted separately and do not count as
overflows. The model runs piece by piece, with its branches and loops, and holds at most --max-memory
of values. --strict exits with 1 if a value overflows.`

// rangesFlags are the flags of audit --ranges.
type rangesFlags struct {
	ranges bool
	text   prompts.PromptFlags // prompts and their tokenizer
	file   string
	tokens int
	memory string
	most   int64
	html   string
}

func (f *rangesFlags) flags(c *cobra.Command) {
	n := c.Flags()
	n.BoolVar(&f.ranges, "ranges", false, "run the model in float32 and report the values that 16 bits would change")
	n.StringArrayVar(&f.text.Prompts, "prompt", nil,
		`a prompt to run on, "-" reads it from stdin; repeatable`)
	n.StringVar(&f.file, "text", "", "a text file to run on, in pieces of --tokens")
	n.StringVar(&f.text.Tokenizer, "tokenizer", "",
		"tokenizer.json, or the folder with it (default: the model's folder)")
	cli.CompleteFile(c, "tokenizer", "json")
	n.IntVar(&f.tokens, "tokens", 512, "tokens of a --text per run")
	n.StringVar(&f.memory, "max-memory", "1G", "the most bytes of values to hold at once")
	n.StringVar(&f.html, "html", "", "also write the report as one page, with a chart by layer")
	cli.CompleteFile(c, "html", "html")
	cli.Rules(c, "tokenizer requires prompt text", "prompt text tokens max-memory html requires ranges",
		"prompt text excludes inputs dim seed: --prompt and --text set the inputs")
}

func (f *rangesFlags) check(c *cobra.Command, model string) (err error) {
	if f.tokens < 1 {
		return fmt.Errorf("--tokens %d: must be 1 or more", f.tokens)
	}
	if slices.Contains(f.text.Prompts, "") {
		return errors.New("--prompt is empty")
	}
	if f.most, err = cli.ParseBytes(f.memory); err != nil {
		return fmt.Errorf("--max-memory: %w", err)
	}
	return (&cli.PageFlag{HTML: f.html}).Check([]string{model}, false)
}

// RangesReport is the result of audit --ranges, and its JSON form.
type RangesReport struct {
	Schema  int    `json:"schema"`
	Model   string `json:"model"`
	Backend string `json:"backend"`
	// Widened is the half type of a model that ran in float32 with its weights unchanged; absent for other models.
	Widened string `json:"widened_from,omitempty"`
	Inputs  string `json:"inputs"` // the inputs that the model ran on: a file, "prompts" or "random"
	Cases   int    `json:"cases"`
	// First is the first value in execution order with an element beyond 65504; absent if no value has one.
	First *ranges.Row `json:"first_overflow,omitempty"`
	// FirstIn16 is the first such value that apply --dtype float16 does not keep in float32.
	FirstIn16 *ranges.Row        `json:"first_in_float16,omitempty"`
	Overflow  int                `json:"overflow"` // how many values have such elements
	Blocks    []*ranges.BlockRow `json:"blocks"`
	Limit     int64              `json:"max_memory"`
	Run       trace.Watched      `json:"run"`
	Values    []*ranges.Row      `json:"values"` // in the order of execution
	ranges    *ranges.Ranges
}

// auditRanges runs audit --ranges.
func (f *options) auditRanges(a *cli.App, path string) error {
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	r := &RangesReport{Schema: cli.JSONSchema, Model: path, Limit: f.ranges.most, ranges: ranges.New()}
	cases, err := f.rangesCases(m, r)
	if err != nil {
		return err
	}
	if err := r.widen(m, cases); err != nil {
		return err
	}
	if err := session.InlineOthers(m); err != nil {
		return err
	}
	step, end := a.Progress("value")
	defer end()
	w := trace.NewWatcher(m, trace.WatchOptions{Open: f.backend.Pieces(a, &r.Backend), MaxMemory: f.ranges.most,
		Progress: func(done, total int) { step(r.Cases*total+done, len(cases)*total) }})
	for i, c := range cases {
		run, err := w.Run(c.Inputs, r.ranges.Look(i))
		if err != nil {
			return cli.Failed(err)
		}
		r.Cases++
		r.Run.Add(run)
	}
	r.ranges.Finish(staysFloat32(m))
	r.First, r.FirstIn16, r.Overflow = r.ranges.First(), r.ranges.FirstIn16(), r.ranges.Overflows()
	r.Blocks, r.Values = r.ranges.Blocks(), r.ranges.Rows
	if err := a.Result(r); err != nil {
		return err
	}
	r.write(a)
	if err := r.page(a, f.ranges.html); err != nil {
		return err
	}
	if f.strict && r.First != nil {
		return cli.Failed(fmt.Errorf("%s: %s beyond float16's greatest number (--strict)", path,
			cli.Counted(r.Overflow, "value")))
	}
	return nil
}

// rangesCases returns the inputs that the flags name.
func (f *options) rangesCases(m *onnx.Model, r *RangesReport) ([]golden.Case, error) {
	switch g := &f.ranges; {
	case len(g.text.Prompts) > 0 || g.file != "":
		r.Inputs = "prompts"
		return g.promptCases(m)
	case f.inputs.File != "":
		r.Inputs = f.inputs.File
		cases, err := feeds.RecordedCases(f.inputs.File, m)
		for i, c := range cases {
			if len(c.Follows) > 0 {
				return nil, fmt.Errorf("case %d: --ranges does not support recorded cases that continue from a past "+
					"of an earlier case", i)
			}
		}
		return cases, err
	}
	r.Inputs = "random"
	return f.inputs.Cases(m, 1)
}

// promptCases makes inputs from the prompts and from the pieces of the text.
func (f *rangesFlags) promptCases(m *onnx.Model) ([]golden.Case, error) {
	t := &prompts.Texts{}
	var list []generate.Recorded
	if len(f.text.Prompts) > 0 {
		var err error
		if t, err = f.text.Texts(m.Path); err != nil {
			return nil, err
		}
		for _, ids := range t.IDs {
			list = append(list, generate.Recorded{Prompt: ids})
		}
	}
	if f.file != "" {
		whole := f.text
		whole.Prompts, whole.PromptFile = nil, f.file
		t, err := whole.Texts(m.Path)
		if err != nil {
			return nil, err
		}
		for piece := range slices.Chunk(t.IDs[0], f.tokens) {
			list = append(list, generate.Recorded{Prompt: piece})
		}
	}
	return feeds.PromptCases(m, list)
}

// widen makes a model in half precision compute in float32, on float32 inputs.
func (r *RangesReport) widen(m *onnx.Model, cases []golden.Case) error {
	half := convert.HalfType(m)
	if half == onnx.Undefined {
		return nil
	}
	if m.Opset(fused.Domain) > 0 {
		if golden.Half(m) == onnx.Undefined {
			return nil // the scales of weights that are stored in blocks
		}
		return cli.Failed(fmt.Errorf("%s is patched and computes in %s: use the model that it was patched from, which "+
			"can be widened", m.Path, half))
	}
	if _, err := convert.Precision(m, onnx.Float); err != nil {
		return cli.Failed(fmt.Errorf("%s cannot be widened to float32: %w", m.Path, err))
	}
	r.Widened = half.String()
	for _, c := range cases {
		for i, t := range c.Inputs {
			v := m.Graph.Value(t.Name)
			if v == nil || !t.DataType.IsHalf() {
				continue
			}
			if is, _ := v.Type(); is.DataType == onnx.Float {
				wide, err := golden.Convert(t, onnx.Float)
				if err != nil {
					return err
				}
				c.Inputs[i] = wide
			}
		}
	}
	return nil
}

// narrows reports whether a value is read in float16.
func narrows(u onnx.Use) bool {
	return u.Node.Is("Cast") && u.Node.AttrInt("to", 0) == int64(onnx.Float16)
}

// staysFloat32 returns the names of the values that apply --dtype float16 computes in float32 and that nothing reads in
// float16. It is empty for a model that cannot be converted.
func staysFloat32(m *onnx.Model) map[string]bool {
	names := map[string]bool{}
	half, err := m.Clone()
	if err == nil {
		_, err = convert.Precision(half, onnx.Float16)
	}
	if err != nil {
		return names
	}
	facts := infer.Analyze(half)
	for _, g := range half.Graphs() {
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v != nil && facts.DataType(v) == onnx.Float && !slices.ContainsFunc(v.Uses(), narrows) {
					names[v.Name] = true
				}
			}
		}
	}
	return names
}
