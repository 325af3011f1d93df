package rewrite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

type (
	builder = *onnxtest.Builder
	value   = *onnx.Value
)

func apply(t *testing.T, m *onnx.Model, request ...Request) *Report {
	t.Helper()
	plan := planned(t, m, request...)
	if err := plan.Replace(); err != nil {
		t.Fatal(err)
	}
	return plan.Report
}

// planned returns the plan for a model without replacing sites.
func planned(t *testing.T, m *onnx.Model, request ...Request) *Plan {
	t.Helper()
	q := Request{}
	if len(request) > 0 {
		q = request[0]
	}
	q.AssumeAvailable = true
	p, err := New(q)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(m)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func modelBytes(t *testing.T, m *onnx.Model) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestApply(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
		t.Run(typ.String(), func(t *testing.T) {
			m := rewritetest.Block(t, 20, typ)
			want := rewritetest.Evaluate(t, m)
			r := apply(t, m)
			var text bytes.Buffer
			r.WriteText(&text)
			counts := map[string]PatternReport{}
			for _, p := range r.Patterns {
				counts[p.Name] = p
			}
			for name, n := range map[string]int{"RMSNorm": 1, "AddRMSNorm": 2, "SwiGLU": 2, "RotaryEmbedding": 1,
				"GeGLU": 0} {
				if p := counts[name]; p.Found != n || p.Fused != n || p.Refused != 0 {
					t.Errorf("%s: %+v, want %d of %d\n%s", name, p, n, n, &text)
				}
			}
			ops := rewritetest.CountOps(m)
			for op, n := range map[string]int{"RMSNorm": 1, "AddRMSNorm": 2, "GLU": 2, "RotaryEmbedding": 1,
				"ReduceMean": 0,
				"Pow":        0, "Cast": 0, "Sigmoid": 0, "Slice": 0, "Concat": 0, "MatMul": 6, "Add": 0} {
				if ops[op] != n {
					t.Errorf("%d %s nodes, want %d: %v", ops[op], op, n, ops)
				}
			}
			if m.IRVersion < 10 || m.Opset(fused.Domain) != fused.Version || len(m.Functions) == 0 {
				t.Errorf("IR %d, opsets %v, %d functions", m.IRVersion, m.Opsets, len(m.Functions))
			}
			for _, v := range m.Graph.Initializers() {
				if strings.HasPrefix(v.Name, "const") {
					t.Errorf("initializer %s is left", v.Name)
				}
			}
			got := rewritetest.Evaluate(t, m)
			for name, w := range want {
				d, scale := prove.Distance(w.F, got[name].F)
				if allowed := 16 * prove.Spacing(typ, scale); d > allowed {
					t.Errorf("%s differs by %g, %g allowed", name, d, allowed)
				}
			}
			rewritetest.CheckOrder(t, m)
		})
	}
}

func TestApplyTwiceChangesNothing(t *testing.T) {
	m := rewritetest.Block(t, 20, onnx.Float)
	apply(t, m)
	first := modelBytes(t, m)
	r := apply(t, m)
	if r.Changed || r.Fused() != 0 || !bytes.Equal(first, modelBytes(t, m)) {
		t.Errorf("the second run changed the model: %+v", r)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	var first []byte
	for i := range 3 {
		m := rewritetest.Block(t, 17, onnx.Float)
		apply(t, m)
		b := modelBytes(t, m)
		if i > 0 && !bytes.Equal(first, b) {
			t.Fatal("two runs differ")
		}
		first = b
	}
}

func TestDryRunAndNone(t *testing.T) {
	m := rewritetest.Block(t, 20, onnx.Float)
	before := modelBytes(t, m)
	if r := planned(t, m).Report; r.Changed || r.Fused() != 6 || !r.DryRun {
		t.Errorf("%+v", r)
	}
	r, err := Apply(m, Request{Kernels: None})
	if err != nil || r.Changed || len(r.Sites) != 0 || len(r.Patterns) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if !bytes.Equal(before, modelBytes(t, m)) {
		t.Error("the model was changed")
	}
}

func TestOneKernelLeavesTheRest(t *testing.T) {
	m := rewritetest.Block(t, 20, onnx.Float)
	r, err := Apply(m, Request{Kernels: "cpu_fused_swiglu", AssumeAvailable: true})
	if err != nil {
		t.Fatal(err)
	}
	if ops := rewritetest.CountOps(m); ops["GLU"] != 2 || ops["RMSNorm"] != 0 || ops["ReduceMean"] != 3 {
		t.Errorf("%v", ops)
	}
	if p := r.pattern("AddRMSNorm"); p.Found != 2 || p.Fused != 0 || p.Refused != 0 {
		t.Errorf("%+v", p)
	}
	for _, k := range r.Kernels {
		if want := map[string]int{"cpu_fused_swiglu": 2}[k.ID]; k.Sites != want {
			t.Errorf("%s took %d sites, want %d", k.ID, k.Sites, want)
		}
	}
}

func TestFilters(t *testing.T) {
	m := rewritetest.Block(t, 20, onnx.Float)
	seen := 0
	r := apply(t, m, Request{KeepPattern: func(p string) bool { return p == "SwiGLU" },
		KeepNode: func(*onnx.Node) bool { seen++; return seen == 1 }})
	if r.Fused() != 1 || rewritetest.CountOps(m)["GLU"] != 1 {
		t.Errorf("%d fused: %v", r.Fused(), rewritetest.CountOps(m))
	}
}

func TestProvenance(t *testing.T) {
	m := rewritetest.Block(t, 20, onnx.Float)
	for _, n := range m.Graph.Nodes {
		n.Metadata = []onnx.Entry{{Key: "namespace", Value: n.Name}}
	}
	apply(t, m, Request{Version: "1.2.3"})
	for _, n := range m.Graph.Nodes {
		if n.Domain != fused.Domain {
			continue
		}
		meta := map[string]string{}
		for _, e := range n.Metadata {
			meta[e.Key] = e.Value
		}
		var sources []string
		if err := json.Unmarshal([]byte(meta[edit.MetaSourceNodes]), &sources); err != nil || len(sources) < 3 {
			t.Errorf("%s: source nodes %q", n.Name, meta[edit.MetaSourceNodes])
		}
		if meta[edit.MetaRule] == "" || meta[edit.MetaVersion] != "1.2.3" || meta["namespace"] == "" {
			t.Errorf("%s: %v", n.Name, meta)
		}
	}
}

func TestOldOpsetsAndKeptNames(t *testing.T) {
	for _, opset := range []int64{13, 15, 17, 18, 21} {
		b := rewritetest.New(t, opset, onnx.Float16)
		x := b.In("x", 2, "n", 8)
		gate, up := b.Op("Neg", x), b.Op("Abs", x)
		y := b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), up)
		b.Out(y, 2, "n", 8)
		name := y.Name
		r := apply(t, b.Model)
		if r.Fused() != 1 || b.Graph.Outputs[0].Name != name || b.Graph.Outputs[0].Producer.OpType != "GLU" {
			t.Errorf("opset %d: %+v", opset, r.Sites)
		}
		for _, f := range b.Model.Functions {
			if f.Opset("") != opset {
				t.Errorf("function of opset %d in a model of %d", f.Opset(""), opset)
			}
		}
	}
}

func TestReportJSON(t *testing.T) {
	r := apply(t, rewritetest.Block(t, 20, onnx.Float))
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"schema":1`, `"patterns":[{"name":"AddRMSNorm","found":2,"fused":2,"refused":0}`,
		`"status":"fused"`,
		`"max_abs":`, `"tolerance":`, `"kernel":"cpu_fused_rmsnorm"`, `"time_ms":{`,
		`{"name":"GeGLU","found":0,"fused":0,"refused":0}`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil ||
		!strings.Contains(text.String(), fmt.Sprintf("%-18s 2 of 2", "AddRMSNorm")) {
		t.Errorf("%v\n%s", err, &text)
	}
}

func TestKernelAskedForByNameIsNeverPassedOver(t *testing.T) {
	m := onnx.New(8, 20)
	_, err := Apply(m, Request{Kernels: "cpu_fused_rmsnorm", Library: t.TempDir()})
	var unavailable *registry.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.ID != "cpu_fused_rmsnorm" || !errors.Is(err, fused.ErrNoLibrary) {
		t.Errorf("got %v", err)
	}
	_, err = Apply(m, Request{Kernels: "cpu_fused_rmsnorm,none such"})
	if unknown := (*registry.UnknownKernelError)(nil); !errors.As(err, &unknown) {
		t.Errorf("got %v", err)
	}
}
