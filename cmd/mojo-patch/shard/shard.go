// Package shard is the command shard.
package shard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/plans"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
	"github.com/spf13/cobra"
)

type options struct {
	ranks   int64
	experts string
	out     string
	least   string
	form    string
	plan    string
	explain bool
}

// New returns the command shard.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "shard MODEL --ranks N -o FOLDER",
		Short: "Divide a model over several processes, each with a part of the weights",
		Long: `shard writes a model for each of N ranks: FOLDER/rank-0.onnx and so on, their weights in
FOLDER/` + onnx.FolderData + `, and FOLDER/` + shard.PlanFile + `, which describes the division. Bytes that several ranks use
are stored once. run, generate, bench and diff take FOLDER for MODEL if mpirun, torchrun or srun starts
them once for each rank (docs/distributed.md).

Attention is divided by heads, gated units and experts by their widths, and heads of the vocabulary by
tokens. The ranks add up partial sums by AllReduce, and concatenate parts by AllGather. shard evaluates
all ranks of each block together and compares them with the whole block. A block that differs, or
cannot be divided, stays whole on every rank; --explain shows the reasons. If nothing can be
divided, shard writes nothing and exits with 3.

With --experts spread, each rank has whole experts of a mixture instead of a part of each expert.

With --collectives tensorrt, the models have DistCollective of TensorRT 11 instead, and bodies of fused
ops instead of the ops: shard refuses an op without a body. mojo-patch does not run these models.

With --plan, only the blocks that an edited ` + shard.PlanFile + ` names by their first and last nodes are divided;
delete blocks from the file to leave them whole. The plan replaces --ranks, --experts
and --collective-over. The division is evaluated and compared as without the flag.

--explain also estimates the time of a step with one token for 1 to 64 ranks, from the weights that it
reads and the number of collective operations, and names blocks that take more time than they save.

A model that apply has not patched is patched first, as apply does without flags. To choose flags, use
apply, and shard the patched model.`,
		Example: `  mojo-patch shard model.onnx --ranks 2 -o sharded
  mojo-patch shard mixture.onnx --ranks 4 --experts spread -o sharded --explain
  mpirun -n 2 mojo-patch generate sharded --tokenizer FOLDER --prompt "Once upon a time"
  torchrun --nproc-per-node 2 --no-python mojo-patch diff sharded --golden recorded.npz`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			edited, err := f.edited(c)
			if err != nil {
				return err
			}
			return f.shard(a, args[0], edited)
		},
	}
	fl := c.Flags()
	fl.Int64Var(&f.ranks, "ranks", 0, "number of ranks: processes that run the model together")
	fl.StringVar(&f.experts, "experts", string(shard.Split),
		"split: a part of every expert on each rank; spread: whole experts on each rank")
	fl.StringVarP(&f.out, "output", "o", "", "new folder to write")
	fl.StringVar(&f.least, "collective-over", "16M",
		"divide a weight that needs a collective operation for itself, such as an embedding, only if it has more bytes")
	fl.StringVar(&f.form, "collectives", string(shard.Mojo),
		"mojo: collective operations of libmojo_ops; tensorrt: DistCollective of TensorRT 11")
	fl.StringVar(&f.plan, "plan", "", "edited "+shard.PlanFile+": divide only the blocks that it names")
	fl.BoolVar(&f.explain, "explain", false,
		"print each block, its weights and collective operations, and the weights that stay whole with the reasons")
	values := func(list ...string) func() []string { return func() []string { return list } }
	cli.CompleteValues(c, "experts", values(string(shard.Split), string(shard.Spread)), false)
	cli.CompleteValues(c, "collectives", values(string(shard.Mojo), string(shard.TensorRT)), false)
	a.JSONFlag(c, "shard")
	return c
}

// edited reads the edited plan and takes its options; nil without one.
func (f *options) edited(c *cobra.Command) (*shard.Plan, error) {
	if f.plan == "" {
		return nil, nil
	}
	for _, name := range []string{"ranks", "experts", "collective-over"} {
		if c.Flags().Changed(name) {
			return nil, fmt.Errorf("--%s cannot be used with --plan: %s has the value", name, f.plan)
		}
	}
	p, err := shard.ReadPlanFile(f.plan)
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	f.ranks, f.experts = p.Ranks, string(p.Experts)
	if !c.Flags().Changed("collectives") && p.Form != "" {
		f.form = string(p.Form)
	}
	return p, nil
}

func (f *options) shard(a *cli.App, path string, edited *shard.Plan) error {
	experts, form := shard.Experts(f.experts), shard.Form(f.form)
	least, err := cli.ParseBytes(f.least)
	if edited != nil {
		least, err = edited.Least, nil
	}
	switch {
	case f.ranks == 0:
		return errors.New("--ranks N is missing: the number of processes that run the model together")
	case f.ranks < 1 || f.ranks > 1024:
		return fmt.Errorf("--ranks %d: must be 1 to 1024", f.ranks)
	case experts != shard.Split && experts != shard.Spread:
		return fmt.Errorf("--experts %q: must be %s or %s", f.experts, shard.Split, shard.Spread)
	case form != shard.Mojo && form != shard.TensorRT:
		return fmt.Errorf("--collectives %q: must be %s or %s", f.form, shard.Mojo, shard.TensorRT)
	case err != nil:
		return fmt.Errorf("--collective-over: %w", err)
	case f.out == "":
		return errors.New("-o FOLDER is missing")
	}
	if err := onnx.CheckNewFolder(f.out); err != nil {
		return err
	}
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if !isPatched(m) {
		report, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Version: cli.Version()})
		if err != nil {
			return err
		}
		a.Say("patched %s first: %s", path, cli.Counted(report.Fused(), "block"))
	}
	p, err := shard.New(m, shard.Options{Ranks: f.ranks, Experts: experts, Least: least, Form: form,
		Edited: edited})
	if errors.Is(err, shard.ErrNothing) {
		return cli.ExitWith(cli.ExitNothing, fmt.Errorf("%s: %w", path, err))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := p.Write(f.out); err != nil {
		return err
	}
	plans.Say(a, p, f.explain || a.Verbose)
	a.Say("wrote %s: %s, %s, %s", f.out, rankFiles(f.ranks), onnx.FolderData, shard.PlanFile)
	return a.Result(plans.NewResult(f.out, p))
}

// isPatched reports whether apply found blocks of the model before: it has a fused op that quantize and weights load do
// not write.
func isPatched(m *onnx.Model) bool {
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if op := fused.Lookup(n.OpType); n.Domain == fused.Domain && op != nil && !op.Family.Stored {
				return true
			}
		}
	}
	return false
}

func rankFiles(ranks int64) string {
	names := []string{shard.RankFile(0)}
	if ranks > 2 {
		names = append(names, "…")
	}
	if ranks > 1 {
		names = append(names, shard.RankFile(ranks-1))
	}
	return strings.Join(names, ", ")
}
