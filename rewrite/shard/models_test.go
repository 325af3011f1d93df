package shard_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// TestModels divides every bundled model over 2 and 4 ranks, evaluates all ranks together without rounding, and
// compares with the whole model.
func TestModels(t *testing.T) {
	files, err := filepath.Glob("../../models/*.onnx")
	if err != nil || len(files) == 0 {
		t.Fatal("no models", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".onnx"), func(t *testing.T) {
			m, err := onnx.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			request := rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff}
			if _, err := rewrite.Apply(m, request); err != nil {
				t.Fatal(err)
			}
			for _, o := range []shard.Options{{Ranks: 2, Experts: shard.Split}, {Ranks: 4, Experts: shard.Spread}} {
				o.Least = 1024
				p, err := shard.New(m, o)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, m, p)
				t.Logf("%d ranks: %d of %d bytes, %d blocks", p.Ranks, p.Bytes, p.Before, len(p.Blocks))
				for _, c := range p.Whole {
					t.Log("whole:", c.Name, c.Bytes, c.Reason)
					if strings.Contains(c.Reason, "the ranks compute something else") ||
						strings.Contains(c.Reason, "cannot be compared") {
						t.Error(c.Reason)
					}
				}
			}
		})
	}
}

// TestForms divides models with the caches, products and weights that apply and quantize make.
func TestForms(t *testing.T) {
	for _, form := range []struct {
		name, model string
		request     rewrite.Request
		ranks       int64
	}{
		{"static caches", "llama-kv-dynamo-fp32", rewrite.Request{StaticCache: &staticcache.Options{Length: 64}}, 2},
		{"pools of blocks", "llama-kv-dynamo-fp32", rewrite.Request{PagedCache: 16}, 2},
		{"pools of codes", "llama-kv-dynamo-fp32", rewrite.Request{PagedCache: 16, PagedType: onnx.Int8}, 2},
		{"merged products", "llama-kv-dynamo-fp32", rewrite.Request{Merge: rewrite.MergeAll}, 2},
		{"latents", "deepseek3naive-kv-dynamo-fp32", rewrite.Request{LatentCache: true}, 2},
		{"bfloat16", "qwen3-dynamo-fp32", rewrite.Request{DType: onnx.BFloat16}, 2},
		{"states", "../llm/generate/testdata/hybrid-fp32", rewrite.Request{}, 2},
		{"unequal parts", "deepseek3naive-kv-dynamo-fp32", rewrite.Request{}, 3},
		{"unequal latents", "deepseek3naive-kv-dynamo-fp32", rewrite.Request{LatentCache: true}, 3},
	} {
		t.Run(form.name, func(t *testing.T) {
			m, err := onnx.Read("../../models/" + form.model + ".onnx")
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			form.request.AssumeAvailable, form.request.Verify = true, rewrite.VerifyOff
			if _, err := rewrite.Apply(m, form.request); err != nil {
				t.Fatal(err)
			}
			p, err := shard.New(m, shard.Options{Ranks: form.ranks, Experts: shard.Split, Least: 1024})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range p.Whole {
				t.Errorf("%s stays whole: %s", c.Name, c.Reason)
			}
			equal(t, m, p)
		})
	}
}

// equal compares the ranks with the whole model on random inputs.
func equal(t *testing.T, m *onnx.Model, p *shard.Plan) {
	t.Helper()
	inputs, err := golden.RandomInputs(m, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]*reference.Tensor{}
	for _, x := range inputs {
		if whole[x.Name], err = reference.FromONNX(x); err != nil {
			t.Fatal(err)
		}
	}
	e, err := reference.New(m, reference.Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	want, err := e.Run(whole)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Evaluate(reference.Options{Exact: true}, whole)
	if err != nil {
		t.Fatal(err)
	}
	for name, y := range want {
		if err := close(got[name], y); err != nil {
			t.Errorf("output %q: %v", name, err)
		}
	}
}

// close allows the differences of sums in another order, in float64.
func close(got, want *reference.Tensor) error {
	if got == nil || got.Len() != want.Len() {
		return fmt.Errorf("%v instead of %v", got, want)
	}
	most := 0.0
	for _, x := range want.F {
		most = max(most, math.Abs(x))
	}
	for i, x := range want.F {
		if d := math.Abs(got.F[i] - x); d > 1e-9*most || d != d {
			return fmt.Errorf("element %d is %g instead of %g", i, got.F[i], x)
		}
	}
	return nil
}
