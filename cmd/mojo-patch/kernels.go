package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// kernelRow is one op, combination of types and device, and its JSON form.
type kernelRow struct {
	Kernel string   `json:"kernel"`
	Op     string   `json:"op"`
	Types  []string `json:"types"`
	Device string   `json:"device"`
	// Status is "runs", "fails", or "unknown" where it cannot be tried here.
	Status string `json:"status"`
	// MaxRel is the difference from the op's definition, as a part of the greatest magnitude.
	MaxRel *float64 `json:"max_rel,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// The states of a kernel.
const (
	kernelRuns    = "runs"
	kernelFails   = "fails"
	kernelUnknown = "unknown"
)

func newKernels(a *app) *cobra.Command {
	var lib, onnxruntime string
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels by op, type and device, and try each here",
		Long: `kernels lists every kernel with the ops, types and devices it serves. Where onnxruntime and the kernel library are found,
each is run on small inputs and compared with the op's definition; it exits with 1 when one fails, and with 4 when
there is nothing to try it with.`,
		Example: `  mojo-patch kernels
  mojo-patch kernels --kernels-lib build/libmojo_ops.so --json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			rows, missing := tryKernels(onnxruntime, lib)
			if a.json {
				if err := a.printJSON(map[string]any{"schema": jsonSchema, "kernels": rows}); err != nil {
					return err
				}
			} else {
				writeKernels(a.out, rows)
			}
			if missing != nil {
				return environment(missing)
			}
			for _, r := range rows {
				if r.Status == kernelFails {
					return failed(fmt.Errorf("%s (%s): %s", r.Op, strings.Join(r.Types, ", "), r.Reason))
				}
			}
			return nil
		},
	}
	libraryFlags(c, &onnxruntime, &lib)
	a.jsonFlag(c)
	return c
}

// tryKernels runs every kernel there is, if it can; missing says what it lacks to do so.
func tryKernels(onnxruntime, lib string) (rows []kernelRow, missing error) {
	p, missing := newProber(onnxruntime, lib)
	if p != nil {
		defer p.close()
	}
	for _, k := range rewrite.ScanAllKernels() {
		for _, name := range k.Ops {
			op := fused.Lookup(name)
			for _, s := range probeSites(op) {
				r := kernelRow{Kernel: k.ID, Op: name, Device: k.Device, Status: kernelUnknown}
				for _, t := range s.Types {
					r.Types = append(r.Types, t.String())
				}
				if p != nil {
					r.Status = kernelRuns
					rel, err := p.try(op, s)
					r.MaxRel = &rel
					if err != nil {
						r.Status, r.Reason, r.MaxRel = kernelFails, err.Error(), nil
					}
				}
				rows = append(rows, r)
			}
		}
	}
	return rows, missing
}

// firstLine shortens an error that lists where was looked.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, ". Looked at:")
}

func writeKernels(w io.Writer, rows []kernelRow) {
	t := newTable("kernel", "op", "types", "device", "here", ">max rel", "")
	for _, r := range rows {
		rel := ""
		if r.MaxRel != nil {
			rel = fmt.Sprintf("%.2g", *r.MaxRel)
		}
		t.add(r.Kernel, r.Op, strings.Join(r.Types, ", "), r.Device, r.Status, rel, r.Reason)
	}
	t.write(w)
}

// probeDims is the shape of the inputs that a kernel is tried on: rows that no vector width divides.
var probeDims = []int64{2, 3, 22}

// probeSites gives the sites of an op that the kernels say they take: every combination of types, with attributes that the
// first of each choice has.
func probeSites(op *fused.Op) []fused.Site {
	attrs := map[string][][]*onnx.Attribute{
		"RMSNorm":    normAttributes(),
		"AddRMSNorm": normAttributes(),
		"GLU": {{onnx.StringAttr("activation", "silu"), onnx.FloatAttr("alpha", 1), onnx.FloatAttr("limit", 0),
			onnx.FloatAttr("up_offset", 0)}},
		"RotaryEmbedding": {{onnx.IntAttr("interleaved", 0), onnx.IntAttr("rotary_dim", probeDims[2]),
			onnx.StringAttr("rotated_side", "first"), onnx.StringAttr("output_layout", "halves")}},
	}[op.Name]
	floats := []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16}
	var sites []fused.Site
	for _, t := range floats {
		for _, last := range floats {
			for _, a := range attrs {
				s := fused.Site{Attributes: a, Opset: probeOpset}
				for range op.Inputs {
					s.Types = append(s.Types, t)
					s.Dims = append(s.Dims, probeDims)
				}
				s.Types[len(s.Types)-1] = last
				if op.Inputs[len(op.Inputs)-1].Name == "scale" {
					s.Dims[len(s.Dims)-1] = probeDims[2:]
				}
				if op.Supports(s) == nil {
					sites = append(sites, s)
					break
				}
			}
		}
	}
	return sites
}

func normAttributes() [][]*onnx.Attribute {
	var list [][]*onnx.Attribute
	for _, after := range []int64{0, 1} {
		list = append(list, []*onnx.Attribute{onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", 1e-6), onnx.IntAttr("scale_after_cast", after)})
	}
	return list
}
