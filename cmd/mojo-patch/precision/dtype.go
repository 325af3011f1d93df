package precision

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/products"
	"github.com/spf13/cobra"
)

// DTypes are the values of --dtype.
var DTypes = map[string]onnx.DataType{"float32": onnx.Float, "float16": onnx.Float16, "bfloat16": onnx.BFloat16,
	"fp32": onnx.Float, "fp16": onnx.Float16, "bf16": onnx.BFloat16}

// DTypeFlag adds --dtype to a command.
func DTypeFlag(c *cobra.Command, value *string, usage string) {
	c.Flags().StringVar(value, "dtype", "", usage)
	cli.CompleteValues(c, "dtype", func() []string { return []string{"float32", "float16", "bfloat16"} }, false)
}

// DTypeOf returns the type of --dtype, or Undefined if it is not given.
func DTypeOf(name string) (onnx.DataType, error) {
	if name == "" {
		return onnx.Undefined, nil
	}
	if t, ok := DTypes[name]; ok {
		return t, nil
	}
	return onnx.Undefined, fmt.Errorf("--dtype %s: choose float32, float16 or bfloat16", name)
}

// DefaultExternalOver is the size above which weights go to a file beside the model, which can be mapped.
const DefaultExternalOver = 1023

// ActivationKinds are the values of --activations, the default first.
var ActivationKinds = []string{"int16", "int8", "float", "fp8"}

// MergeProducts merges quantized products of one value. The merged weights are read while the model is written.
func MergeProducts(m *onnx.Model) (*products.MergeReport, error) {
	r, err := onlyChanged(m, rewrite.Request{Merge: rewrite.MergeQuantized})
	if err != nil {
		return nil, err
	}
	return r.Merged, nil
}
