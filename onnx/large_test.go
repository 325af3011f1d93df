package onnx

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// largeModel writes a model of 120 initializers of 4 MiB and 51 nodes for each (504 MB, 6,120 nodes). The weights are
// holes in the file, except for their first bytes.
func largeModel(tb testing.TB) string {
	tb.Helper()
	const initializers, size, nodes = 120, 4 << 20, 51
	rest := modelOf(&onnxpb.GraphProto{Name: ptr("large"), Input: valueInfos("x"), Output: valueInfos("v")})
	last := "x"
	for i := range initializers {
		for k := range nodes {
			next := fmt.Sprintf("/layers.%d/op.%d_output_0", i, k)
			n := node(next + " = Add(" + last + ",w" + fmt.Sprint(i) + ")")
			if k%2 == 1 {
				n = node(next+" = Cast("+last+")",
					&onnxpb.AttributeProto{Name: ptr("to"), Type: onnxpb.AttributeProto_INT.Enum(), I: ptr(int64(1))})
			}
			rest.Graph.Node = append(rest.Graph.Node, n)
			rest.Graph.ValueInfo = append(rest.Graph.ValueInfo, valueInfos(next)...)
			last = next
		}
	}
	rest.Graph.Output[0].Name = &last
	graph, err := proto.Marshal(rest.Graph)
	if err != nil {
		tb.Fatal(err)
	}
	var headers [][]byte
	length := len(graph)
	for i := range initializers {
		t := &onnxpb.TensorProto{Name: ptr(fmt.Sprintf("w%d", i)), DataType: ptr(int32(Float)),
			Dims: []int64{1024, 1024}}
		b, err := proto.Marshal(t)
		if err != nil {
			tb.Fatal(err)
		}
		b = protowire.AppendVarint(protowire.AppendTag(b, 9, protowire.BytesType), size)
		header := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), uint64(len(b)+size))
		headers = append(headers, append(header, b...))
		length += len(headers[i]) + size
	}
	path := filepath.Join(tb.TempDir(), "large.onnx")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 10)
	b = protowire.AppendVarint(protowire.AppendTag(b, 7, protowire.BytesType), uint64(length))
	w.Write(append(b, graph...))
	for i, h := range headers {
		w.Write(append(h, byte(i), 1, 2, 3))
		if err := w.Flush(); err != nil {
			tb.Fatal(err)
		}
		if _, err := f.Seek(size-4, io.SeekCurrent); err != nil {
			tb.Fatal(err)
		}
	}
	end, _ := f.Seek(0, io.SeekCurrent)
	if err := f.Truncate(end); err != nil {
		tb.Fatal(err)
	}
	return path
}

// rssAnon returns the private memory of the process in bytes, -1 if /proc lacks it.
func rssAnon() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return -1
}

func TestLargeModel(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a file of 504 MB (sparse)")
	}
	path := largeModel(t)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	debug.FreeOSMemory()
	before := rssAnon()
	start := cputime.Used()
	m, err := Read(path)
	took := cputime.Used() - start
	must(t, err)
	defer m.Close()
	size, err := m.Size()
	must(t, err)
	used := rssAnon() - before
	t.Logf("read %d MB and %d nodes in %v with %d MB of private memory", size/1e6, len(m.Graph.Nodes), took, used>>20)
	if used > 50<<20 {
		t.Errorf("reading took %d MB of private memory", used>>20)
	}
	if took > 2*time.Second { // ten times the time on an idle machine
		t.Errorf("reading took %v", took)
	}
	b, err := m.Graph.Value("w7").Const.Bytes()
	if err != nil || len(b) != 4<<20 || b[0] != 7 || b[3] != 3 {
		t.Errorf("w7 has %d bytes (%v)", len(b), err)
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	start = cputime.Used()
	must(t, Write(out, m))
	t.Logf("written in %v, private memory %d MB more than before reading", cputime.Used()-start, (rssAnon()-before)>>20)
	if used := rssAnon() - before; used > 60<<20 {
		t.Errorf("writing took the private memory to %d MB", used>>20)
	}
	again, err := Read(out)
	must(t, err)
	defer again.Close()
	sameTensors(t, m, again)
}

func BenchmarkReadLarge(b *testing.B) {
	path := largeModel(b)
	for b.Loop() {
		m, err := Read(path)
		if err != nil {
			b.Fatal(err)
		}
		m.Close()
	}
}

// TestManyNodes does everything once on 100,000 nodes that all read one value: anything quadratic would not end.
func TestManyNodes(t *testing.T) {
	const n = 100_000
	p := modelOf(&onnxpb.GraphProto{Name: ptr("g"), Input: valueInfos("x"), Output: valueInfos("v99999")})
	last := "x"
	for i := range n {
		next := fmt.Sprintf("v%d", i)
		p.Graph.Node = append(p.Graph.Node, node(next+" = Add("+last+",x)"))
		last = next
	}
	path := writeMessage(t, p)
	start := cputime.Used()
	step := func(name string, limit time.Duration) {
		d := cputime.Used() - start
		t.Logf("%s: %v", name, d)
		if d > limit {
			t.Errorf("%s took %v", name, d)
		}
		start = cputime.Used()
	}
	m, err := Read(path)
	must(t, err)
	defer m.Close()
	step("read", 5*time.Second)
	g := m.Graph
	x := g.Inputs[0]
	for _, v := range g.Nodes { // declared types make value_info entries
		v.Outputs[0].SetType(Type{DataType: Float})
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	must(t, Write(out, m))
	must(t, Write(out, m))
	step("write twice", 5*time.Second)
	y := g.NewValue("y")
	g.InsertAt(map[*Node][]*Node{g.Nodes[0]: {g.NewNode("Relu", []*Value{x})}})
	g.Nodes[0].TakeOutput(0, y)
	for len(x.Uses()) > 1 { // rewires from the last use; below from the first
		u := x.Uses()[len(x.Uses())-1]
		u.Node.SetInput(u.Index, y)
	}
	for range n {
		u := y.Uses()[0]
		u.Node.SetInput(u.Index, x)
	}
	step("rewire", 5*time.Second)
	must(t, g.Sort())
	step("sort", 5*time.Second)
	dead := map[*Node]bool{}
	for _, n := range g.Nodes[2 : len(g.Nodes)-1] {
		dead[n] = true
	}
	lastNode := g.Nodes[len(g.Nodes)-1]
	lastNode.SetInput(0, x)
	must(t, g.RemoveNodes(dead))
	step("remove", 5*time.Second)
	if len(g.Nodes) != 3 {
		t.Errorf("%d nodes are left", len(g.Nodes))
	}
	must(t, Write(out, m))
	if got := message(t, out).Graph; len(got.ValueInfo) != 1 || len(got.Node) != 3 {
		t.Errorf("%d value infos, %d nodes", len(got.ValueInfo), len(got.Node))
	}
}
