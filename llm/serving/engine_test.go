package serving

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// pagedDecoder patches a decoder of two layers for pools of blocks of 16 tokens, also for a target.
func pagedDecoder(t *testing.T, r rewrite.Request, to *target.Target) *onnx.Model {
	t.Helper()
	m, err := onnx.Read(filepath.Join(models, "llama-kv-dynamo-fp32.onnx"))
	must(t, err)
	t.Cleanup(func() { m.Close() })
	r.AssumeAvailable, r.Verify, r.PagedCache = true, rewrite.VerifyOff, 16
	if to != nil {
		r.Verify, r.Merge = rewrite.VerifyDistinct, rewrite.MergeAll // what is not proven stays outside of attention
	}
	r.Target = to
	_, err = rewrite.Apply(m, r)
	must(t, err)
	return m
}

// engineInputs are a chunk of a prompt, a new token after 20 others, and a prompt, as genai's Engine feeds them.
func engineInputs(t onnx.DataType) map[string]*reference.Tensor {
	ints := func(t onnx.DataType, shape []int, list ...int64) *reference.Tensor {
		return reference.NewInts(t, shape, list)
	}
	in := map[string]*reference.Tensor{
		genaiIDs:       ints(onnx.Int64, []int{6}, 11, 5, 7, 31, 8, 9),
		engineStarts:   ints(onnx.Int32, []int{4}, 0, 3, 4, 6),
		enginePast:     ints(onnx.Int32, []int{3}, 4, 20, 0),
		engineTable:    ints(onnx.Int32, []int{3, 2}, 3, -1, 2, 0, 1, -1),
		engineMetadata: ints(onnx.Int32, []int{3}, 3, 21, 21),
	}
	for i := range 4 {
		list := make([]float64, 4*16*2*16)
		for k := range list {
			list[k] = float64((k*7+i)%13-6) / 8
		}
		in[layerName(layerNames[i%2].past, i/2)] = reference.NewFloats(t, []int{4, 16, 2, 16}, list)
	}
	return in
}

// pagedNames turns genai's names of pools into those of the model.
var pagedNames = strings.NewReplacer("past_key_values.0.key", "past_k0", "past_key_values.0.value", "past_v0",
	"past_key_values.1.key", "past_k1", "past_key_values.1.value", "past_v1")

// TestEngine: the exported model computes from the Engine's inputs what the paged one computes, and declares the types
// that the Engine reads.
func TestEngine(t *testing.T) {
	ort, err := target.Lookup("ort")
	must(t, err)
	for _, c := range []struct {
		name    string
		request rewrite.Request
		target  *target.Target
		logits  string
		config  []string
	}{
		{"onnxruntime's op", rewrite.Request{DType: onnx.Float16, LastLogits: true}, ort,
			"float16[batch_size, 160]",
			[]string{`"attention_metadata": "attention_metadata"`, `"gpu_utilization_factor": 0.6`}},
		{"the kernel library's op", rewrite.Request{}, nil,
			"float32[num_tokens, 160]", []string{`"num_blocks": 8`, `"custom_ops_library": "library.so"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := pagedDecoder(t, c.request, c.target)
			library := filepath.Join(t.TempDir(), "library.so")
			must(t, os.WriteFile(library, nil, 0o666))
			o := GenAIOptions{Tokenizer: filepath.Join(models, "smollm2"), Provider: "cuda", ContextLength: 64,
				Library: library, Engine: &EngineOptions{MaxBatch: 5}}
			dt := onnx.Float16
			if c.target == nil {
				dt, o.Engine.Blocks = onnx.Float, 8
			}
			feeds := engineInputs(dt)
			if c.target == nil {
				delete(feeds, engineMetadata)
			}
			paged := map[string]*reference.Tensor{} // by the names of the paged model
			for name, x := range feeds {
				if name = pagedNames.Replace(name); name != engineMetadata {
					paged[name] = x
				}
			}
			before, names := evaluated(t, m, paged), onnx.Names(m.Graph.Outputs)
			folder := t.TempDir()
			f, err := WriteGenAI(folder, m, o)
			must(t, err)
			if f.Cache != cachePaged || f.Layers != 2 || f.Batch != batchAny || (f.FusedOps == 0) != (c.target != nil) {
				t.Errorf("%+v", f)
			}
			made, err := onnx.Read(filepath.Join(folder, modelFile))
			must(t, err)
			defer made.Close()
			for _, n := range made.Graph.Nodes {
				if n.Is("Shape") && n.Input(0).Name == engineTable {
					t.Errorf("node %q computes tables in each step", n.Label())
				}
			}
			var inputs []string
			for _, v := range made.Graph.Inputs {
				typ, _ := v.Type()
				if text := v.Name + " " + typ.String(); !strings.HasPrefix(text, "past_key_values.") {
					inputs = append(inputs, text)
				} else if !strings.HasSuffix(text, " "+dt.String()+"[num_blocks, 16, 2, 16]") {
					t.Error(text)
				}
			}
			want := []string{"input_ids int64[num_tokens]", "cumulative_sequence_lengths int32[batch_size + 1]",
				"past_sequence_lengths int32[batch_size]", "block_table int32[batch_size, max_num_blocks]",
				"attention_metadata int32[3]"}[:len(feeds)-4]
			if !slices.Equal(inputs, want) {
				t.Errorf("inputs %q, want %q", inputs, want)
			}
			if typ, _ := made.Graph.Value(genaiLogits).Type(); typ.String() != c.logits {
				t.Errorf("logits %s, want %s", typ, c.logits)
			}
			after := evaluated(t, made, feeds)
			for i, v := range made.Graph.Outputs {
				if want := before[names[i]]; !slices.Equal(after[v.Name].F, want.F) {
					t.Errorf("%s differs", v.Name)
				}
			}
			for _, in := range roles.Find(made) {
				if want := strings.Replace(in.Value.Name, "past_key_values", "present", 1); in.Role == roles.Pool &&
					in.Present().Name != want {
					t.Errorf("pool %s is written to %s", in.Value.Name, in.Present().Name)
				}
			}
			b, err := os.ReadFile(filepath.Join(folder, "genai_config.json"))
			must(t, err)
			for _, text := range append(c.config, `"block_size": 16`, `"max_batch_size": 5`, `"kind": "paged_kv"`,
				`"past_present_share_buffer": true`, `"head_size": 16`, `"num_key_value_heads": 2`,
				`"block_table": "block_table"`) {
				if !strings.Contains(string(b), text) {
					t.Errorf("genai_config.json lacks %s:\n%s", text, b)
				}
			}
			if feeds[engineMetadata] == nil {
				return
			}
			feeds[engineMetadata].I[1] = 20
			e, err := reference.New(made, reference.Options{})
			must(t, err)
			if _, err := e.Run(feeds); err == nil || !strings.Contains(err.Error(), "attention_metadata") {
				t.Errorf("a wrong bound: %v", err)
			}
		})
	}
}

func evaluated(t *testing.T, m *onnx.Model, in map[string]*reference.Tensor) map[string]*reference.Tensor {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	must(t, err)
	out, err := e.Run(in)
	must(t, err)
	return out
}

// TestEngineRings: layers with a window read the second table of blocks, which repeats their rings.
func TestEngineRings(t *testing.T) {
	windowed := func(layers ...int) *onnx.Model {
		m, i := pagedDecoder(t, rewrite.Request{}, nil), 0
		for _, n := range m.Graph.Nodes {
			if n.OpType == fused.PagedAttentionName {
				if slices.Contains(layers, i) {
					a := fused.Read[fused.PagedAttention](n.Attributes)
					a.Window = 3
					n.Attributes = a.Attributes()
					types := append(slices.Repeat([]onnx.DataType{onnx.Float}, 5), onnx.Int32, onnx.Int32, onnx.Int32)
					f, err := fused.Lookup(n.OpType).Function(fused.Site{Opset: m.Opset(""), Attributes: n.Attributes,
						Types: types})
					must(t, err)
					if n.Overload = f.Overload; m.Function(f.Domain, f.Name, f.Overload) == nil {
						m.Functions = append(m.Functions, f)
					}
				}
				i++
			}
		}
		return m
	}
	library := filepath.Join(t.TempDir(), "library.so")
	must(t, os.WriteFile(library, nil, 0o666))
	for _, c := range []struct {
		layers  []int
		context int64
		rings   bool
	}{{[]int{1}, 4096, true}, {nil, 4096, false}, {[]int{0, 1}, 4096, false}, {[]int{1}, 512, false}} {
		m := windowed(c.layers...)
		feeds, paged := engineInputs(onnx.Float), map[string]*reference.Tensor{}
		delete(feeds, engineMetadata)
		for name, x := range feeds {
			paged[pagedNames.Replace(name)] = x
		}
		before, names := evaluated(t, m, paged), onnx.Names(m.Graph.Outputs)
		if len(c.layers) == 1 { // as apply writes it
			typ, _ := m.Graph.Value("block_table").Type()
			table := m.Graph.AddInput(engineWindowed, typ)
			for _, n := range m.Graph.Nodes {
				if n.OpType == fused.PagedAttentionName && n.AttrInt("window", 0) > 0 {
					n.SetInput(fused.PagedAttentionBlockTable, table)
				}
			}
		}
		folder := t.TempDir()
		_, err := WriteGenAI(folder, m, GenAIOptions{Tokenizer: filepath.Join(models, "smollm2"), Provider: "cpu",
			ContextLength: c.context, Library: library, Engine: &EngineOptions{MaxBatch: 5, Blocks: 8}})
		must(t, err)
		made, err := onnx.Read(filepath.Join(folder, modelFile))
		must(t, err)
		defer made.Close()
		b, err := os.ReadFile(filepath.Join(folder, "genai_config.json"))
		must(t, err)
		for _, text := range []string{`"window_size": 3`, `"block_table_windowed": "block_table_windowed"`,
			`"chunk_size": 512`} {
			if strings.Contains(string(b), text) != c.rings {
				t.Errorf("%v: rings %t, and genai_config.json has %s: %t", c, c.rings, text, !c.rings)
			}
		}
		if c.rings {
			// The window of the token after 20 others is in the second block of its sequence, the only one of its ring.
			feeds[engineWindowed] = reference.NewInts(onnx.Int32, []int{3, 2}, []int64{3, 3, 0, 0, 1, 1})
			v := made.Graph.Value("past_key_values.1.key")
			if typ, _ := v.Type(); typ.String() != "float32[num_blocks_windowed, 16, 2, 16]" {
				t.Errorf("the pool of rings is %s", typ)
			}
		}
		after := evaluated(t, made, feeds)
		for i, v := range made.Graph.Outputs {
			if !slices.Equal(after[v.Name].F, before[names[i]].F) {
				t.Errorf("%v: %s differs", c, v.Name)
			}
		}
	}
}

// TestEngineRefuses: models whose inputs or pools the Engine cannot fill.
func TestEngineRefuses(t *testing.T) {
	for reason, change := range map[string]func(*decoder){
		"does not provide input kind": func(d *decoder) {
			d.Others = []generate.Port{{Value: &onnx.Value{Name: "kind"}}}
		},
		"pools of one shape, but the model has past_k0": func(d *decoder) { d.Caches[3].Past.Dims[2].Value++ },
		"reads a pool that is not an input":             func(d *decoder) { d.Caches = d.Caches[:3] },
	} {
		d, err := readPaged(pagedDecoder(t, rewrite.Request{}, nil))
		must(t, err)
		change(d)
		if err := d.fitEngine(&GenAIFolder{}); !strings.Contains(fmt.Sprint(err), reason) {
			t.Errorf("%v, want %s", err, reason)
		}
	}
	ort, err := target.Lookup("ort")
	must(t, err)
	d, err := readPaged(pagedDecoder(t, rewrite.Request{DType: onnx.Float16}, ort))
	must(t, err)
	for _, n := range d.g.Nodes {
		if isOnnxruntimes(n) {
			typ, _ := n.Input(cosInput).Type()
			typ.Dims = []onnx.Dim{{Value: 40}, typ.Dims[1]}
			n.Input(cosInput).SetType(typ)
		}
	}
	const short = "have rows for 40 positions"
	if err := d.fitEngine(&GenAIFolder{ContextLength: 64}); !strings.Contains(fmt.Sprint(err), short) {
		t.Errorf("%v, want %s", err, short)
	}
}
