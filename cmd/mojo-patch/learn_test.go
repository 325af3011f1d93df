package main

import (
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/rogpeppe/go-internal/testscript"
)

// writeUnlisted writes two layers of norms and gated units that match no pattern: unlisted FILE SIZE EPSILON.
func writeUnlisted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: unlisted FILE SIZE EPSILON")
	}
	size, err := strconv.Atoi(args[1])
	ts.Check(err)
	epsilon, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	ts.Check(onnx.Write(ts.MkAbs(args[0]), unlisted(size, epsilon)))
}

func unlisted(size int, epsilon float64) *onnx.Model {
	b := onnxtest.New(20)
	weights := func(dims ...int64) *onnx.Value {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		w := make([]float32, n)
		for i := range w {
			w[i] = float32(i*i%101)/101 - 0.3
		}
		return b.Floats(dims, w...)
	}
	x := b.Input("x", onnx.Float, "batch", "sequence", size)
	n := int64(size)
	for range 2 {
		mean := b.Op("Div", b.Op("Einsum", x, x, onnx.StringAttr("equation", "bsc,bsc->bs")), float64(size))
		root := b.Op("Unsqueeze", b.Op("Sqrt", b.Op("Add", mean, epsilon)), []int64{-1})
		normed := b.Op("Mul", b.Op("Div", x, root), weights(n))
		gate, up := b.Op("MatMul", normed, weights(n, n)), b.Op("MatMul", normed, weights(n, n))
		tanh := b.Op("Tanh", b.Op("Mul", gate, 0.5))
		unit := b.Op("Mul", b.Op("Mul", gate, up), b.Op("Mul", b.Op("Add", tanh, 1.0), 0.5))
		x = b.Op("Add", x, b.Op("MatMul", unit, weights(n, n)))
	}
	b.Output(x)
	return b.Model
}
