// Package audit is the command audit.
package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/spf13/cobra"
)

type options struct {
	backend session.Backend
	inputs  feeds.InputFlags
	strict  bool
	ranges  rangesFlags
}

// Report is the result of audit, and its JSON form.
type Report struct {
	Schema   int    `json:"schema"`
	Model    string `json:"model"`
	Provider string `json:"provider"`
	// Source is where the placement comes from. "session": onnxruntime opened the model and placed its nodes.
	// "registry": it could not open the whole model and placed each kind of node in a model of that node. "table": the
	// provider is not installed, and a list of its kernels is used. "fused": there is no list either, and only fused
	// ops are placed, by the catalog of fused kernels.
	Source  string         `json:"source"`
	Runtime string         `json:"runtime,omitempty"`
	Refused string         `json:"refused,omitempty"` // why onnxruntime does not open the model
	Nodes   int            `json:"nodes"`             // of the model, in subgraphs too
	Domains map[string]int `json:"domains"`
	Ops     []auditedOp    `json:"ops"`
	// Placed counts nodes by provider as onnxruntime runs them, after folding nodes and inlining functions.
	Placed map[string]int `json:"placed"`
	// Elsewhere lists the nodes that do not run on the provider.
	Elsewhere []placedOp       `json:"elsewhere"`
	Copies    copies           `json:"copies"`
	Dims      map[string]int64 `json:"dims"` // that the copies are counted with
	Patching  []savedOp        `json:"patching"`
}

// auditedOp counts the nodes of one op with inputs of the same types.
type auditedOp struct {
	Domain string   `json:"domain"`
	Op     string   `json:"op"`
	Types  []string `json:"types"`
	Nodes  int      `json:"nodes"`
	// On counts the nodes by provider. Nodes that onnxruntime folded or replaced are not counted.
	On map[string]int `json:"on"`
}

// placedOp is an op that runs on another provider, or that no provider runs.
type placedOp struct {
	Domain string   `json:"domain"`
	Op     string   `json:"op"`
	Types  []string `json:"types"`    // empty for nodes that onnxruntime made
	On     string   `json:"provider"` // "" if no provider has a kernel
	Nodes  int      `json:"nodes"`
	Reason string   `json:"reason"`
}

// New returns the command audit.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "audit MODEL [KEY=VALUE...]",
		Short: "Show the device of each node, those that fall back to the CPU, and the work that patching saves",
		Long: `audit counts the nodes by domain, op and types of inputs. It reports which nodes --provider runs,
which fall back to the CPU and which have no kernel, how many bytes a run copies between providers,
and how many Cast, Transpose and other nodes that move data are left after patching. It runs nothing
and writes nothing.

audit opens the model in onnxruntime and asks where each node runs. If onnxruntime rejects the model,
audit opens each kind of node in a model by itself, which shows only the registered kernels; the
report says so. The bytes of copies follow from the inferred shapes for the sizes of --dim or
--inputs. They are an upper bound: a kernel may read an input, such as a shape, from the host.

If CUDA, or onnxruntime itself, is not found, audit uses a list of the kernels that onnxruntime has for
CUDA and for the CPU: nodes that the CUDA provider has no kernel for run on the CPU. The report names
the version of the list. For another provider that is not found, audit places only fused ops, by the
kernels that exist for it, and exits with 4.

--strict exits with 1 if a node runs on another provider or has no kernel.

` + rangesHelp,
		Example: `  mojo-patch audit model.onnx
  mojo-patch audit model.onnx --provider cuda --strict --dim batch=1 --dim sequence=128
  mojo-patch audit patched.onnx --provider qnn backend_type=htp soc_model=60 --json
  mojo-patch audit model.onnx --ranges --text book.txt --html ranges.html`,
		Args:              f.backend.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			args = f.backend.Take(args, 1)
			if err := errors.Join(f.backend.Check(c), f.inputs.Check(c), f.ranges.check(c, args[0])); err != nil {
				return err
			}
			if f.ranges.ranges {
				return f.auditRanges(a, args[0])
			}
			if f.backend.Only {
				return errors.New("audit does not support --provider-only: use --strict, which lists the nodes left " +
					"to the CPU and exits with 1")
			}
			if f.backend.Evaluator {
				return errors.New("audit needs onnxruntime: the built-in evaluator supports every op")
			}
			f.backend.Fallback = false
			return f.audit(a, args[0])
		},
	}
	f.backend.AddTo(c)
	f.inputs.AddTo(c)
	c.Flags().BoolVar(&f.strict, "strict", false,
		"exit with 1 if a node is not on the provider, or with --ranges if a value overflows float16")
	f.ranges.flags(c)
	cli.Headings(c, "provider html strict json",
		"Ranges: ranges inputs dim seed prompt text tokens tokenizer max-memory",
		"Runtime: backend provider-option provider-library provider-device provider-only kernels optimize "+
			"threads products evaluator", cli.PathsHeading)
	a.JSONFlag(c, "audit", "audit-ranges")
	return c
}

// audit is the command.
func (f *options) audit(a *cli.App, path string) error {
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	r := &Report{Schema: cli.JSONSchema, Model: path, Provider: f.backend.Provider, Domains: map[string]int{},
		Ops: []auditedOp{}, Placed: map[string]int{}, Elsewhere: []placedOp{}, Dims: map[string]int64{}}
	if r.Patching, err = patchingSaves(a, path, f.backend.Provider); err != nil {
		return err
	}
	p, missing, err := f.place(a, m, r)
	if err != nil {
		return err
	}
	if r.Dims, err = feeds.FixInputDims(m, &f.inputs); err != nil {
		return err
	}
	facts := infer.Analyze(m)
	r.count(m, facts, p)
	r.Copies = countCopies(m, facts, p)
	if err := a.Result(r); err != nil {
		return err
	}
	r.write(a)
	if missing != nil {
		return cli.Environment(missing)
	}
	if n := r.left(); f.strict && n > 0 {
		return cli.Failed(fmt.Errorf("%s: %s not on %s (--strict)", path, cli.Counted(n, "node"), r.Provider))
	}
	return nil
}

// count fills the census.
func (r *Report) count(m *onnx.Model, facts *infer.Facts, p *placement) {
	at := map[string]int{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			r.Nodes++
			domain := cli.DomainName(n.Domain)
			r.Domains[domain]++
			types := inputTypes(n, facts)
			key := fmt.Sprint(domain, n.OpType, types)
			i, ok := at[key]
			if !ok {
				i = len(r.Ops)
				at[key] = i
				r.Ops = append(r.Ops, auditedOp{Domain: domain, Op: n.OpType, Types: types, On: map[string]int{}})
			}
			r.Ops[i].Nodes++
			if on := p.of(n); on != "" {
				r.Ops[i].On[on]++
			}
		}
	})
	slices.SortStableFunc(r.Ops, func(x, y auditedOp) int {
		if x.Domain != y.Domain {
			return strings.Compare(x.Domain, y.Domain)
		}
		if x.Op != y.Op {
			return strings.Compare(x.Op, y.Op)
		}
		return slices.Compare(x.Types, y.Types)
	})
}

// inputTypes returns the types of a node's inputs: "" for an omitted input, "?" for an unknown type.
func inputTypes(n *onnx.Node, facts *infer.Facts) []string {
	types := []string{}
	for _, v := range n.Inputs {
		switch t := facts.DataType(v); {
		case v == nil:
			types = append(types, "")
		case t == onnx.Undefined:
			types = append(types, "?")
		default:
			types = append(types, t.String())
		}
	}
	return types
}

// left counts the nodes that do not run on the provider.
func (r *Report) left() int {
	n := 0
	for _, e := range r.Elsewhere {
		n += e.Nodes
	}
	return n
}
