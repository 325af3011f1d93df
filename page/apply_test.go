package page_test

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// written makes the page about a bundled model, as apply does.
func written(t *testing.T, model string) string {
	t.Helper()
	m, err := onnx.Read(filepath.Join("..", "models", model+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return pageOf(t, m)
}

func pageOf(t *testing.T, m *onnx.Model) string {
	t.Helper()
	p := page.Begin(m, "test")
	patcher, err := rewrite.New(rewrite.Request{AssumeAvailable: true})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := patcher.Plan(m)
	if err != nil {
		t.Fatal(err)
	}
	p.AddSites(plan.Report)
	if err := plan.Replace(); err != nil {
		t.Fatal(err)
	}
	p.End(m, "")
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRepeatable demands equal pages for equal models, except for times, and pages that fetch nothing.
func TestRepeatable(t *testing.T) {
	times := regexp.MustCompile(`[0-9]+ ms`)
	once, again := written(t, "llama-ts-fp32"), written(t, "llama-ts-fp32")
	if times.ReplaceAllString(once, "") != times.ReplaceAllString(again, "") {
		t.Error("two pages about one model differ")
	}
	fetches := regexp.MustCompile(`(?i)<script|@import|url\((?:[^#])|(?:src|href)="[^#d]`)
	if found := fetches.FindString(once); found != "" {
		t.Errorf("the page has %q", found)
	}
}

// TestOverflow demands that the page says where results differ because nodes overflow.
func TestOverflow(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float16, "batch", 8)
	half := func(v *onnx.Value) *onnx.Value { return b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float16))) }
	mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
	root := b.Op("Sqrt", b.Op("Add", mean, half(b.Floats([]int64{}, 1e-5))))
	b.Output(b.Op("Mul", b.Op("Div", x, root), half(b.Floats([]int64{8}, 1, 2, 3, 4, 5, 6, 7, 8))))
	if text := pageOf(t, b.Model); !strings.Contains(text, "They differed on these inputs: huge, outlier.") {
		t.Error("the page does not say that the nodes overflow")
	}
}

// TestShown opens pages in a browser, at the width of a telephone and of a desktop, light and dark.
func TestShown(t *testing.T) {
	for _, c := range []struct {
		model         string
		width, height int
		dark          bool
		texts         []string
	}{
		{"qwen3-dynamo-fp32", 390, 2000, false, []string{"qwen3-dynamo-fp32.onnx", "13 blocks of this model became",
			"the results agree", "215 → 51", "NormRotary × 4", "mojo.AddRMSNorm", "None: every block"}},
		{"near/moe-before-ts-fp32", 1280, 1400, true, []string{"2 blocks of this model", "1 site refused", "MoE",
			"Why: differs from the matched nodes", "Hint: on hard inputs"}},
		{"near/moe-absent-ts-fp32", 390, 1400, true, []string{"4 near misses", "Near misses", "Hint:"}},
	} {
		t.Run(filepath.Base(c.model), func(t *testing.T) {
			t.Parallel()
			s := opened(t, written(t, c.model), c.width, c.height, c.dark, c.texts)
			if s.Boxes < 10 || s.Marks < 2 {
				t.Errorf("%d boxes, %d marks", s.Boxes, s.Marks)
			}
		})
	}
}
