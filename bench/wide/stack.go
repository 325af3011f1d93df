package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// stack is some layers of a decoder with a cache: it goes through weights load, apply, quantize, generate and diff.
type stack struct {
	name    string
	decoder checkpoints.Grouped
}

func stacks(layers int64) []stack {
	list := []stack{{"Llama-3-8B", checkpoints.Llama8B}, {"Qwen3-30B-A3B", checkpoints.Qwen30B}}
	for i := range list {
		list[i].decoder.Layers = layers
	}
	return list
}

const (
	// stackLayers is the number of layers of a stack, stackRounds how often each form generates, in turns.
	stackLayers = 2
	stackRounds = 3
	// stackTokens are generated after a prompt of stackPrompt.
	stackPrompt = 32
	stackTokens = 32
)

// form is a form of a stack, and its results.
type form struct {
	name, path string
	decode     []float64 // tokens per second, of each round
	prefill    []float64
	bytes      int64 // of its initializers
	private    int64
	kl, worst  float64 // divergence from the form compared with: the mean, and the worst position
	same       float64 // share of positions with the same most probable token
	against    string
}

func (b *bench) stackHeader() {
	fmt.Println("| two layers of | form | weights | memory | prompt, tokens/s | decoding, tokens/s | decoding over " +
		"exported | mean KL, worst | same top-1 |")
	fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |")
}

// writeStack writes the first layers of a decoder with a cache into a folder.
func writeStack(dir, name string, layers int64) error {
	oss := checkpoints.GptOss20B
	if oss.Layers, oss.Cached = layers, true; name == models()[0].name {
		return writeModel(dir, oss.Build())
	}
	for _, s := range stacks(layers) {
		if s.name == name {
			return writeModel(dir, s.decoder.Build())
		}
	}
	return fmt.Errorf("unknown decoder with a cache %q", name)
}

// writeModel writes a model as graph.onnx and model.safetensors.
func writeModel(dir string, m *checkpoints.Model) error {
	return errors.Join(onnx.Write(filepath.Join(dir, "graph.onnx"), m.Graph),
		checkpoints.Safetensors(filepath.Join(dir, "model.safetensors"), m.Tensors))
}

// runStack takes a stack through all steps.
func (b *bench) runStack(s stack) (err error) {
	dir, err := os.MkdirTemp(b.dir, "stack")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := func(name string) string { return filepath.Join(dir, name) }
	graph, checkpoint := at("graph.onnx"), at("model.safetensors")
	if err := writeModel(dir, s.decoder.Build()); err != nil {
		return err
	}
	exported, patched, rounded := form{name: "as exported, float32", path: at("exported.onnx")},
		form{name: "patched, float32", path: at("patched.onnx")}, form{name: "patched, q4_0", path: at("rounded.onnx")}
	var loaded weights.Report
	_, err = b.step(&loaded, "weights", "load", graph, "--from", checkpoint, "-o", exported.path, "--strict")
	if err != nil {
		return err
	}
	if err := os.Remove(checkpoint); err != nil {
		return err
	}
	if err := b.patch(s, exported.path, patched.path); err != nil {
		return err
	}
	if err := b.round(s, patched.path, rounded.path); err != nil {
		return err
	}
	for _, flags := range [][]string{{patched.path}, {rounded.path, "--atol", "1000", "--max-kl", "1"}} {
		if _, err := b.step(&struct{}{}, append([]string{"diff", exported.path}, flags...)...); err != nil {
			return err
		}
	}
	forms := []*form{&exported, &patched, &rounded}
	for range b.rounds() {
		for _, f := range forms {
			if err := b.generate(f); err != nil {
				return err
			}
		}
	}
	for _, f := range forms[1:] {
		if err := b.diverge(&exported, f); err != nil {
			return err
		}
	}
	for _, f := range forms {
		fmt.Println(f.row(s, &exported))
	}
	for _, f := range forms {
		if err := errors.Join(os.Remove(f.path), removeData(f.path)); err != nil {
			return err
		}
	}
	return b.keep(s, graph, at)
}

func removeData(path string) error {
	if err := os.Remove(path + ".data"); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// patch applies all kernels, and requires every block of the stack to be fused.
func (b *bench) patch(s stack, model, out string, flags ...string) error {
	var r rewrite.Report
	if _, err := b.step(&r, append([]string{"apply", model, "-o", out, "--require"}, flags...)...); err != nil {
		return err
	}
	want := map[string]int64{fused.AttentionName: s.decoder.Layers,
		fused.AddRMSNormName: 2 * s.decoder.Layers, fused.RMSNormName: 1}
	if s.decoder.Experts > 0 {
		want[fused.MoEName], want[fused.TopKRouterName] = s.decoder.Layers, s.decoder.Layers
	} else {
		want["SwiGLU"] = s.decoder.Layers
	}
	for pattern, n := range want {
		if got := count(&r, pattern); got != n {
			return fmt.Errorf("%d of %d %s were fused", got, n, pattern)
		}
	}
	return nil
}

// round quantizes every product, the table and all experts.
func (b *bench) round(s stack, model, out string) error {
	var r struct {
		Weights []struct{ Name string }
		Skipped []struct{ Name, Reason string }
		Check   struct{ Kernels int }
	}
	if _, err := b.step(&r, "quantize", model, "--format", "q4_0", "-o", out); err != nil {
		return err
	}
	want := s.decoder.Products() + 1
	if n := int64(len(r.Weights)); n != want || r.Check.Kernels == 0 {
		return fmt.Errorf("%d of %d matrices were quantized, %d kernels run; the others: %v", n, want, r.Check.Kernels,
			r.Skipped)
	}
	return quantizedNodes(s, out)
}

// quantizedNodes requires every product of a file to be mojo.Linear or mojo.QMoE.
func quantizedNodes(s stack, path string) error {
	m, err := onnx.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	ops := map[string]int64{}
	for _, n := range m.Graph.Nodes {
		if merged := matrices(n); merged > 0 {
			ops[n.OpType] += merged
			continue
		}
		if n.Is("MatMul") && n.Input(1).IsConstant() {
			return fmt.Errorf("node %q still multiplies with floats", n.Label())
		}
		ops[n.OpType]++
	}
	want := map[string]int64{fused.LinearName: s.decoder.Products(), fused.EmbeddingName: 1}
	if s.decoder.Experts > 0 {
		want[fused.QMoEName] = s.decoder.Layers
		want[fused.LinearName] -= 2 * s.decoder.Layers
	}
	for op, n := range want {
		if ops[op] != n {
			return fmt.Errorf("%d of %d products are mojo.%s", ops[op], n, op)
		}
	}
	return nil
}

// matrices returns the number of products merged in a node, or 0.
func matrices(n *onnx.Node) int64 {
	for _, e := range n.Metadata {
		if e.Key == edit.MetaMatrices {
			return int64(strings.Count(e.Value, `"codes"`))
		}
	}
	return 0
}

func prompt() string {
	var ids []string
	for i := range stackPrompt {
		ids = append(ids, fmt.Sprint(3+5*i))
	}
	return strings.Join(ids, ",")
}

// generate makes a form generate once more.
func (b *bench) generate(f *form) error {
	var r struct {
		Times struct {
			Prefill float64 `json:"prefill_tokens_per_second"`
			Decode  float64 `json:"decode_tokens_per_second"`
		}
	}
	u, err := b.step(&r, "generate", f.path, "--ids", prompt(), "--max-tokens", fmt.Sprint(stackTokens), "--ignore-eos")
	if err != nil {
		return err
	}
	if f.bytes == 0 {
		if f.bytes, err = initializers(f.path); err != nil {
			return err
		}
	}
	f.decode, f.prefill = append(f.decode, r.Times.Decode), append(f.prefill, r.Times.Prefill)
	f.private = max(f.private, u.Private)
	return nil
}

// diverge compares a form with another, on the tokens that the other generates.
func (b *bench) diverge(other, f *form) error {
	var r struct{ Prompts []generate.Comparison }
	if _, err := b.step(&r, "generate", other.path, "--compare", f.path, "--ids", prompt(), "--max-tokens",
		fmt.Sprint(stackTokens), "--ignore-eos", "--max-kl", "100"); err != nil {
		return err
	}
	if len(r.Prompts) != 1 || len(r.Prompts[0].Steps) == 0 {
		return errors.New("generate compares nothing")
	}
	c := r.Prompts[0]
	f.kl, f.worst, f.against = float64(c.MeanKL), float64(c.MaxKL), other.name
	f.same = 1 - float64(c.Differing)/float64(len(c.Steps))
	if limit := map[bool]float64{true: 0.5, false: 1e-6}[strings.Contains(f.name, "q4_0")]; f.kl > limit {
		return fmt.Errorf("%s has a KL divergence of %g from before", f.name, f.kl)
	}
	return nil
}

// keep loads a checkpoint in Q4_0 unchanged, and compares the model with the same weights in float32.
func (b *bench) keep(s stack, graph string, at func(string) string) error {
	metadata, tensors := s.decoder.GGUF()
	checkpoint := at("model.gguf")
	if err := checkpoints.GGUF(checkpoint, metadata, tensors); err != nil {
		return err
	}
	patched := at("graph-patched.onnx")
	if err := b.patch(s, graph, patched, "--allow-missing-weights"); err != nil {
		return err
	}
	kept, wide := form{name: "GGUF's Q4_0, kept", path: at("kept.onnx")},
		form{name: "the same in float32", path: at("wide.onnx")}
	var r weights.Report
	if _, err := b.step(&r, "weights", "load", patched, "--from", checkpoint, "-o", kept.path, "--strict",
		"--keep-quantized"); err != nil {
		return err
	}
	if err := quantizedNodes(s, kept.path); err != nil {
		return err
	}
	if _, err := b.step(&r, "weights", "load", patched, "--from", checkpoint, "-o", wide.path, "--strict"); err != nil {
		return err
	}
	for range b.rounds() {
		for _, f := range []*form{&wide, &kept} {
			if err := b.generate(f); err != nil {
				return err
			}
		}
	}
	if err := b.diverge(&wide, &kept); err != nil {
		return err
	}
	fmt.Println(wide.row(s, &wide))
	fmt.Println(kept.row(s, &wide))
	return nil
}

func (b *bench) rounds() int {
	if b.widened { // the test
		return 1
	}
	return stackRounds
}

// row returns a line of the table; decoding is relative to the other form in the same round.
func (f *form) row(s stack, other *form) string {
	var over []float64
	for i, x := range f.decode {
		over = append(over, x/other.decode[i])
	}
	kl, same := "", ""
	if f.against != "" {
		kl, same = fmt.Sprintf("%.2g, %.2g", f.kl, f.worst), fmt.Sprintf("%.0f %%", 100*f.same)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |", s.name, f.name, gb(f.bytes), gb(f.private),
		spread(f.prefill, "%.0f"), spread(f.decode, "%.1f"), spread(over, "%.2f"), kl, same)
}

// spread returns the median of a list, with its minimum and maximum.
func spread(list []float64, format string) string {
	l := slices.Sorted(slices.Values(list))
	if l[0] == l[len(l)-1] {
		return fmt.Sprintf(format, l[0])
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", l[len(l)/2], l[0], l[len(l)-1])
}

// initializers returns the size of a model's weights in bytes.
func initializers(path string) (n int64, err error) {
	m, err := onnx.Read(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	for _, v := range m.Graph.Initializers() {
		n += max(v.Const.Size(), 0)
	}
	return n, nil
}
