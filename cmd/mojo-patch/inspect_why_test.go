package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/inspect"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/rogpeppe/go-internal/testscript"
)

// writeBlock is a command of the scripts: block NAME FILE writes one of the damaged blocks.
func writeBlock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: block NAME FILE")
	}
	m, err := damagedBlock(args[0])
	ts.Check(err)
	ts.Check(onnx.Write(ts.MkAbs(args[1]), m))
}

// explained runs inspect --why --json on a block.
func explained(t *testing.T, name string, more ...string) inspect.Why {
	t.Helper()
	m, err := damagedBlock(name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	if code := execute(append([]string{"inspect", "--why", "--json", path}, more...), &out,
		&said); code != cli.ExitDone {
		t.Fatalf("exit code %d: %s", code, said.String())
	}
	var w inspect.Why
	if err := json.Unmarshal(out.Bytes(), &w); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWhy demands that the explanation of each damaged block names the damage.
func TestWhy(t *testing.T) {
	tests := map[string]struct{ pattern, at, difference, hint string }{
		"norm-epsilon-outside":          {"RMSNorm 5/7", "Add", "expected Sqrt or Pow, found Add", "outside the root"},
		"norm-epsilon-outside-division": {"RMSNorm 4/6", "Add", "expected Sqrt or Pow, found Add", "outside the root"},
		"norm-epsilon-input": {"RMSNorm 7/7", "Add",
			"expected a constant of one element (epsilon), found the graph input \"epsilon\"", "Python number"},
		"norm-epsilon-negative": {"RMSNorm 7/7", "Mul", "expected epsilon > 0, found that epsilon is -1e-06",
			"above zero"},
		"norm-wrong-axis": {"RMSNorm 7/7", "ReduceMean",
			"expected the mean over the last axis, found ReduceMean of another axis", "last axis"},
		"norm-cube":               {"RMSNorm 7/7", "Pow", "expected the constant 2, found the constant 3", "another number"},
		"norm-two-things":         {"RMSNorm 6/8", "ReduceMean", "found ReduceMean of another axis", "last axis"},
		"norm-of-another":         {"RMSNorm 7/7", "Pow", "(\"other\"), found the graph input \"x\"", "different values"},
		"norm-scale-matrix":       {"RMSNorm 7/7", "Mul", "expected one number for each channel, found", "one vector"},
		"norm-scale-scalar":       {"RMSNorm 7/7", "Mul", "dim(scale, -1) is 1", "one vector"},
		"norm-residual-broadcast": {"RMSNorm 7/7", "Mul", "expected one number for each channel, found", "one vector"},
		"norm-unknown-shape": {"RMSNorm 7/7", "ReduceMean", "ReduceMean of a tensor of unknown shape",
			"shape inference"},
		"norm-unknown-last-axis": {"RMSNorm 7/7", "Mul", "dim(x, -1) is unknown or not constant", "shape inference"},
		"swiglu-dropout":         {"SwiGLU 3/3", "Dropout", "found Dropout, which is in between", "model.eval()"},
		"norm-open-width":        {"RMSNorm 7/0", "Mul", "X is [? ? ?], scale is [?]; export the model", ""},
		"norm-double":            {"RMSNorm 7/0", "Mul", "float64", "float32, float16 and bfloat16"},
		"swiglu-sigmoid-of-up": {"SwiGLU 3/3", "Sigmoid",
			"expected the value that is gate elsewhere in the block (\"x\"), found the graph input \"other\"",
			"another value"},
		"swiglu-broadcast": {"SwiGLU 3/3", "Mul",
			"expected gate and up of the same shape, found shapes [batch, sequence, 8] and [1, 1, 8]", "broadcast"},
		"silu-alone": {"SwiGLU 2/3", "Sigmoid", "expected another Mul (for the product of gate, Sigmoid and up)",
			"not a gated unit"},
		"gelu-alone": {"GeGLU 5/6", "Mul", "expected another Mul", "not a gated unit"},
		"geglu-other-constant": {"GeGLU 6/6", "Div", "expected the constant 1.4142135623730951, found the constant 1.5",
			"another number"},
		"rotary-halves-swapped": {"RotaryEmbedding 0/0", "Add", "one channel of the input instead of two",
			"swapped"},
		"rotary-both-minus":      {"RotaryEmbedding 0/0", "Add", "no table of cosines and sines", "minus sign"},
		"rotary-uneven":          {"RotaryEmbedding 0/0", "Add", "pair channels in another way", "halves"},
		"rotary-of-another":      {"RotaryEmbedding 0/0", "Add", "a common factor as wide as the result", "in common"},
		"rotary-tables-of-heads": {"RotaryEmbedding 0/0", "Add", "a common factor as wide as the result", "more axes"},
		"rotary-unknown-size":    {" 0/0", "Neg", "Neg of Slice, which goes to Concat", "size of the head"},
		"sigmoid-alone":          {" 0/0", "Sigmoid", "Sigmoid, which goes to MatMul", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := explained(t, name)
			if len(w.Reasons) != 1 {
				t.Fatalf("%d reasons: %+v", len(w.Reasons), w.Reasons)
			}
			x := w.Reasons[0]
			at, difference := x.Node, x.Refusal+x.Around
			if len(x.Differences) > 0 {
				at, difference = x.Differences[0].At, x.Differences[0].String()
			}
			if got := fmt.Sprintf("%s %d/%d", x.Pattern, x.Matched, x.Size); got != tt.pattern {
				t.Errorf("nearest pattern %s, want %s", got, tt.pattern)
			}
			if at.Op != tt.at || !strings.Contains(difference, tt.difference) {
				t.Errorf("at %s: %s\nwant %s: %s", at, difference, tt.at, tt.difference)
			}
			if !strings.Contains(x.Hint, tt.hint) || (x.Hint == "") != (tt.hint == "") {
				t.Errorf("hint %q, want %q", x.Hint, tt.hint)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(damagedBlocks)) {
		if _, ok := tests[name]; !ok && !sound[name] {
			t.Errorf("block %s is not tested", name)
		}
	}
}

// sound lists blocks without explanations: they are fused, or contain no anchor of a pattern.
var sound = map[string]bool{"norm-as-it-should-be": true, "norm-centered": true, "norm-no-cast-back": true,
	"norm-missing-cast":   true,
	"norm-read-elsewhere": true, "positions-subtracted": true, "norm-sum": true, "norm-no-scale": true, "reglu": true,
	"rotary-as-it-should-be": true,
	"rotary-no-minus":        true,
	"swiglu-gate-scaled":     true}

func TestNothingToExplain(t *testing.T) {
	for name := range sound {
		if w := explained(t, name); len(w.Reasons) != 0 {
			t.Errorf("%s: %+v", name, w.Reasons)
		}
	}
}

// TestWhyNode demands that --node matches any part of a name.
func TestWhyNode(t *testing.T) {
	if w := explained(t, "norm-cube", "--node", "ReduceM"); len(w.Reasons) != 1 {
		t.Errorf("%+v", w.Reasons)
	}
	if w := explained(t, "norm-cube", "--node", "^ReduceM"); len(w.Reasons) != 0 {
		t.Errorf("%+v", w.Reasons)
	}
}
