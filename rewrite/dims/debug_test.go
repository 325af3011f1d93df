package dims

import (
	"fmt"
	"os"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

func TestDebug(t *testing.T) {
	dir := os.Getenv("BAKED")
	m, _ := onnx.Read(dir + "/model.onnx")
	cases, _ := golden.Load(dir+"/golden.npz", nil)
	var ds []*Dim
	for _, n := range []string{os.Getenv("DIM")} {
		d, err := Find(m, n)
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, d)
	}
	a, err := newAnalysis(m, ds, cases[:1])
	fmt.Println(err)
	var c edit.Change
	a.declare(&c, nil)
	s := a.search(0)
	for r, err := range s.readings {
		if s.stuck.node != nil {
			fmt.Println("stuck", s.stuck.node.Label(), s.stuck.err)
		}
		fmt.Println("left", s.left, err)
		if err != nil {
			break
		}
		for x, f := range r.factors {
			fmt.Println("   ", x.node.Label(), x.input, x.part, f)
		}
		v := &variant{reading: r}
		err := s.judge(v)
		fmt.Println("  judge", err, v.rows)
		if v.evidence != nil {
			fmt.Println("  axes", v.evidence.axes, "rows", v.evidence.rows, "causal", v.evidence.causal, "tail", v.evidence.tail)
		}
	}
}
