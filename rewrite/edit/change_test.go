package edit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// model is a graph with a branch, a function and a definition of a fused op.
type model struct {
	*onnx.Model
	g, branch                          *onnx.Graph
	function                           *onnx.Function
	x, unused, listed, w, alone, c     *onnx.Value
	a, b, y                            *onnx.Value
	elu, relu, add, choice, call, last *onnx.Node
}

func build(t *testing.T) *model {
	t.Helper()
	m := &model{Model: onnx.New(3, 18)}
	m.ImportOpset("local", 1)
	m.ImportOpset("spare", 1)
	g := m.Graph
	m.g = g
	float := onnxtest.Type(onnx.Float, 2)
	m.x, m.unused, m.listed = g.AddInput("x", float), g.AddInput("unused", float), g.AddInput("listed", float)
	m.listed.Const = onnx.NewFloat32s("listed", []int64{2}, []float32{1, 2})
	m.w = g.AddInitializer(onnx.NewFloat32s("w", []int64{2}, []float32{1, 2}))
	m.alone = g.AddInitializer(onnx.NewFloat32s("alone", []int64{2}, []float32{1, 2}))
	m.c = g.AddInput("c", onnxtest.Type(onnx.Bool))
	values := func(v ...*onnx.Value) []*onnx.Value { return v }
	m.a, m.b, m.y = g.NewValue("a"), g.NewValue("b"), g.NewValue("y")
	m.elu = g.AddNode("Elu", values(m.x), values(m.a), onnx.FloatAttr("alpha", 2))
	m.relu = g.AddNode("Relu", values(m.a), values(m.b))
	m.add = g.AddNode("Add", values(m.b, m.w), values(g.NewValue("sum")))
	m.add.SetInput(1, m.w)
	branch := func(name, op string) *onnx.Graph {
		s := g.NewSubgraph(name)
		v := s.NewValue(name + "_out")
		s.AddNode(op, values(m.a), values(v))
		s.AddOutput(v)
		return s
	}
	m.branch = branch("then", "Abs")
	m.choice = g.AddNode("If", values(m.c), values(g.NewValue("chosen")), onnx.GraphAttr("then_branch", m.branch),
		onnx.GraphAttr("else_branch", branch("else", "Neg")))
	m.function = onnx.NewFunction("local", "twice", "", 18)
	m.function.Opsets = append(m.function.Opsets, onnx.Opset{Domain: "spare", Version: 1})
	in, out := m.function.Body.AddInput("in", onnx.Type{}), m.function.Body.NewValue("out")
	m.function.Body.AddNode("Add", values(in, in), values(out))
	m.function.Body.AddOutput(out)
	m.Functions = append(m.Functions, m.function, onnx.NewFunction(fused.Domain, "GLU", "uncalled", 18))
	m.call = g.AddNode("twice", values(m.choice.Outputs[0]), values(g.NewValue("doubled")))
	m.call.Domain = "local"
	m.last = g.AddNode("Sum", values(m.add.Outputs[0], m.call.Outputs[0]), values(m.y))
	g.AddOutput(m.y)
	g.AddOutput(m.b)
	return m
}

// state describes everything that edits can change, in list order.
func state(m *onnx.Model) string {
	var s strings.Builder
	fmt.Fprintln(&s, m.IRVersion, m.Opsets)
	value := func(g *onnx.Graph, v *onnx.Value) {
		if v == nil {
			return
		}
		t, typed := v.Type()
		fmt.Fprint(&s, "  ", v.Name, v.IsInput, v.OutputUses(), t, typed, g.Value(v.Name) == v)
		if v.Const != nil {
			fmt.Fprintf(&s, " const %s %p", v.Const.Name, v.Const)
		}
		if v.Producer != nil {
			fmt.Fprint(&s, " of ", v.Producer.OpType, v.Output)
		}
		for _, u := range v.Uses() {
			fmt.Fprint(&s, " read by ", u.Node.OpType, u.Index)
		}
		fmt.Fprintln(&s)
	}
	for _, g := range m.Graphs() {
		fmt.Fprintln(&s, g.Text(), onnx.Names(g.Inputs), onnx.Names(g.Outputs), onnx.Names(g.Initializers()))
		for _, v := range slices.Concat(g.Inputs, g.Initializers()) {
			value(g, v)
		}
		for _, n := range g.Nodes {
			fmt.Fprintln(&s, n.Domain, n.OpType, n.Overload, n.Name, onnx.AttributesKey(n.Attributes), n.Graph == g,
				len(n.Inputs), len(n.Outputs))
			for _, v := range n.Outputs {
				value(g, v)
			}
		}
	}
	for _, f := range m.Functions {
		fmt.Fprintln(&s, edit.FunctionName(f), f.Opsets)
	}
	return s.String()
}

// edits has edits of every kind, each with a test whether it was made.
var edits = map[string]struct {
	edit func(c *edit.Change, m *model) error
	done func(m *model) bool
}{
	"add a node": {func(c *edit.Change, m *model) error {
		c.SetInput(m.elu, 0, c.AddNode(m.g, "Abs", []*onnx.Value{m.x}, []*onnx.Value{m.g.NewValue("new"),
			nil}).Outputs[0])
		return c.Finish()
	}, func(m *model) bool {
		return m.g.Nodes[0].Is("Abs") && m.g.Nodes[1] == m.elu && len(m.x.Uses()) == 1 &&
			len(m.g.Nodes[0].Outputs) == 2
	}},
	"insert nodes": {func(c *edit.Change, m *model) error {
		for range 2 {
			v := m.g.NewValue("new")
			c.Insert(m.relu, c.NewNode(m.g, "Abs", []*onnx.Value{m.relu.Input(0)}, []*onnx.Value{v}))
			c.SetInput(m.relu, 0, v)
		}
		return c.Finish()
	}, func(m *model) bool {
		return m.g.Nodes[1].Is("Abs") && m.g.Nodes[2].Is("Abs") && m.g.Nodes[3] == m.relu &&
			m.relu.Input(0) == m.g.Nodes[2].Outputs[0] && m.g.Value("new_1") != nil
	}},
	"replace a node and what only it needed": {func(c *edit.Change, m *model) error {
		c.AddNode(m.g, "Neg", []*onnx.Value{m.call.Outputs[0]}, m.last.Outputs[:1])
		c.Drop(m.last)
		return c.Finish()
	}, func(m *model) bool {
		return m.y.Producer.Is("Neg") && m.last.Graph == nil && m.add.Graph == nil && m.relu.Graph == m.g &&
			len(m.w.Uses()) == 0 && m.g.Value("w") == nil && m.g.Value("sum") == nil && m.g.Value("alone") != nil
	}},
	"remove a node with branches": {func(c *edit.Change, m *model) error {
		c.SetInput(m.call, 0, m.x)
		c.Drop(m.choice, m.choice)
		return c.Finish()
	}, func(m *model) bool { return m.choice.Graph == nil && len(m.a.Uses()) == 1 && len(m.c.Uses()) == 0 }},
	"drop nodes of two graphs, and again": {func(c *edit.Change, m *model) error {
		v := c.AddNode(m.branch, "Neg", []*onnx.Value{m.a}, []*onnx.Value{m.branch.NewValue("q")})
		c.SetInput(m.call, 0, m.x)
		c.Drop(m.choice, v, m.choice)
		if err := c.Finish(); err != nil || m.choice.Graph != nil || v.Graph != nil {
			return fmt.Errorf("%q and %q stay: %w", m.choice.Label(), v.Label(), err)
		}
		c.Drop(m.choice, v)
		return c.Finish()
	}, func(m *model) bool { return len(m.g.Nodes) == 5 && m.g.Value("chosen") == nil }},
	"drop what is read": {func(c *edit.Change, m *model) error {
		c.Drop(m.elu, m.relu)
		c.DropConstants(m.w, m.listed, m.x, nil)
		c.SetAttr(m.elu, onnx.FloatAttr("alpha", 3))
		return c.Finish()
	}, func(m *model) bool {
		return m.elu.Graph == m.g && m.g.Value("w") == m.w && m.g.Value("listed") == m.listed
	}},
	"drop constants": {func(c *edit.Change, m *model) error {
		c.DropConstants(m.alone)
		return c.Finish()
	}, func(m *model) bool { return m.g.Value("alone") == nil && len(m.g.Initializers()) == 1 }},
	"remove what is unread": {func(c *edit.Change, m *model) error {
		c.AddNode(m.branch, "Neg", []*onnx.Value{c.AddNode(m.g, "Abs", []*onnx.Value{m.x},
			[]*onnx.Value{m.g.NewValue("p")}).Outputs[0]}, []*onnx.Value{m.branch.NewValue("q")})
		return c.RemoveUnread(m.g)
	}, func(m *model) bool {
		return len(m.g.Nodes) == 6 && len(m.branch.Nodes) == 1 && m.g.Value("alone") == nil && m.g.Value("w") == m.w
	}},
	"remove unread nodes": {func(c *edit.Change, m *model) error {
		c.Reread(m.y, m.x)
		c.RemovePort(m.g, m.y)
		return c.RemoveUnreadNodes(m.g)
	}, func(m *model) bool { return len(m.g.Nodes) == 2 && m.g.Value("w") == m.w }},
	"order nodes": {func(c *edit.Change, m *model) error {
		nodes := slices.Clone(m.g.Nodes)
		slices.Reverse(nodes)
		c.SetNodes(m.g, nodes)
		c.SetInput(m.branch.Nodes[0], 0, m.b)
		return c.Finish()
	}, func(m *model) bool { return m.g.Nodes[0] == m.elu && m.g.Nodes[5] == m.last && m.g.Nodes[1] == m.relu }},
	"set inputs": {func(c *edit.Change, m *model) error { c.SetInputs(m.last, m.b, m.w, m.x); return nil },
		func(m *model) bool {
			return onnx.Names(m.last.Inputs)[2] == "x" && len(m.b.Uses()) == 2 && len(m.add.Outputs[0].Uses()) == 0
		}},
	"set fewer inputs": {func(c *edit.Change, m *model) error { c.SetInputs(m.last, m.last.Input(0)); return nil },
		func(m *model) bool { return len(m.last.Inputs) == 1 && len(m.call.Outputs[0].Uses()) == 0 }},
	"drop an input that is left out": {func(c *edit.Change, m *model) error {
		m.last.Inputs = append(m.last.Inputs, nil)
		before := state(m.Model)
		c.SetInputs(m.last, m.last.Inputs[:2]...)
		if len(m.last.Inputs) == 2 && c.Undoable {
			if err := c.Undo(); err != nil || state(m.Model) != before {
				return fmt.Errorf("not undone: %w", err)
			}
		}
		m.last.Inputs = m.last.Inputs[:2]
		c.SetInputs(m.last, m.w, m.last.Input(1))
		return nil
	}, func(m *model) bool { return len(m.last.Inputs) == 2 && m.last.Input(0) == m.w }},
	"read another value": {func(c *edit.Change, m *model) error { c.Reread(m.a, m.x); return c.Finish() },
		func(m *model) bool { return len(m.a.Uses()) == 0 && len(m.x.Uses()) == 4 }},
	"take an output": {func(c *edit.Change, m *model) error { c.TakeOutput(m.relu, 2, m.a); return nil },
		func(m *model) bool {
			return m.a.Producer == m.relu && m.elu.Outputs[0] == nil && len(m.relu.Outputs) == 3
		}},
	"another op": {func(c *edit.Change, m *model) error {
		c.Become(m.elu, "Celu", onnx.FloatAttr("alpha", 1))
		c.SetDomain(m.relu, "local", "two")
		return nil
	}, func(m *model) bool {
		return m.elu.OpType == "Celu" && m.relu.Domain == "local" && m.relu.Overload == "two"
	}},
	"set attributes": {func(c *edit.Change, m *model) error {
		shared := &onnx.Node{Attributes: m.elu.Attributes}
		c.SetAttr(m.elu, onnx.FloatAttr("alpha", 3), onnx.IntAttr("more", 1))
		if shared.AttrFloat("alpha", 0) != 2 {
			return fmt.Errorf("the list of another node was changed")
		}
		return nil
	}, func(m *model) bool { return m.elu.AttrFloat("alpha", 0) == 3 && m.elu.AttrInt("more", 0) == 1 }},
	"remove an attribute": {func(c *edit.Change, m *model) error { c.RemoveAttr(m.elu, "alpha"); return nil },
		func(m *model) bool { return len(m.elu.Attributes) == 0 }},
	"add an initializer": {func(c *edit.Change, m *model) error {
		c.SetInput(m.add, 1, c.AddInitializer(m.g, onnx.NewInt64s("w", []int64{0})))
		return nil
	}, func(m *model) bool { return m.add.Input(1).Name == "w_1" && len(m.w.Uses()) == 0 }},
	"other elements": {func(c *edit.Change, m *model) error {
		c.SetConst(m.w, onnx.NewFloat32s("v", []int64{2}, []float32{1, 2}))
		return nil
	}, func(m *model) bool { return m.w.Const.Name == "v" }},
	"declare types": {func(c *edit.Change, m *model) error {
		c.SetType(m.x, onnxtest.Type(onnx.Float, 3))
		c.SetType(m.a, onnxtest.Type(onnx.Float, 3))
		return nil
	}, func(m *model) bool { t, ok := m.a.Type(); return ok && t.Dims[0].Value == 3 }},
	"add an input": {func(c *edit.Change, m *model) error {
		c.AddInput(m.g, "more", onnxtest.Type(onnx.Float))
		return nil
	}, func(m *model) bool { return m.g.Value("more") == m.g.Inputs[4] }},
	"add an output": {func(c *edit.Change, m *model) error { c.AddOutput(m.g, m.a); return nil },
		func(m *model) bool { return m.a.IsOutput() && m.g.Outputs[2] == m.a }},
	"another output": {func(c *edit.Change, m *model) error { c.SetOutput(m.g, 0, m.a); return nil },
		func(m *model) bool {
			return len(m.g.Outputs) == 2 && m.g.Outputs[0] == m.a && m.a.IsOutput() && !m.y.IsOutput() && m.b.IsOutput()
		}},
	"remove ports": {func(c *edit.Change, m *model) error {
		if c.RemovePort(m.g, m.x) || !c.RemovePort(m.g, m.unused) || !c.RemovePort(m.g, m.y) {
			return fmt.Errorf("x is read, and the others can go")
		}
		return nil
	}, func(m *model) bool { return m.g.Inputs[1] == m.listed && m.g.Outputs[0] == m.b && !m.y.IsOutput() }},
	"rename": {func(c *edit.Change, m *model) error {
		if c.Rename(m.g, m.x, "y") == nil {
			return fmt.Errorf("y is taken")
		}
		return c.Rename(m.g, m.w, "weight")
	}, func(m *model) bool {
		return m.g.Value("w") == nil && m.g.Value("weight") == m.w && m.w.Const.Name == "weight"
	}},
	"add a function": {func(c *edit.Change, m *model) error {
		c.AddFunction(m.Model, onnx.NewFunction("local", "twice", "", 18))
		c.AddFunction(m.Model, onnx.NewFunction("local", "twice", "again", 18))
		return nil
	}, func(m *model) bool { return len(m.Functions) == 3 && m.Functions[2].Overload == "again" }},
	"drop definitions": {func(c *edit.Change, m *model) error {
		c.Become(m.relu, "GLU")
		c.SetDomain(m.relu, fused.Domain, "called")
		c.AddFunction(m.Model, onnx.NewFunction(fused.Domain, "GLU", "called", 18))
		c.AddFunction(m.Model, onnx.NewFunction(fused.Domain, "MoE", "", 18))
		c.AddFunction(m.Model, onnx.NewFunction("other", "GLU", "", 18))
		c.DropDefinitions(m.Model, "twice")
		c.DropDefinitions(m.Model, "GLU")
		return nil
	}, func(m *model) bool {
		var names []string
		for _, f := range m.Functions {
			names = append(names, edit.FunctionName(f))
		}
		return strings.Join(names, " ") == "local.twice. mojo.GLU.called mojo.MoE. other.GLU."
	}},
	"drop a definition": {func(c *edit.Change, m *model) error { c.DropDefinitions(m.Model, "GLU"); return nil },
		func(m *model) bool { return len(m.Functions) == 1 }},
	"remove a branch that returns a constant": {func(c *edit.Change, m *model) error {
		c.AddOutput(m.branch, m.alone)
		c.SetInput(m.call, 0, m.x)
		c.Drop(m.choice)
		return c.Finish()
	}, func(m *model) bool { return m.g.Value("alone") == nil }},
	"IR version 4": {func(c *edit.Change, m *model) error { c.RaiseIR(m.Model, 4); return nil },
		func(m *model) bool { return m.IRVersion == 4 && m.listed.IsConstant() && len(m.g.Inputs) == 3 }},
	"import domains": {func(c *edit.Change, m *model) error {
		c.ImportOpset(m.Model, m.function, "more", 2)
		c.ImportOpset(m.Model, nil, "main", 1)
		return nil
	}, func(m *model) bool {
		return m.Opset("more") == 2 && m.Opset("main") == 1 && m.function.Opset("more") == 2 &&
			m.function.Opset("main") == 0
	}},
	"drop imports": {func(c *edit.Change, m *model) error {
		c.DropImport(m.Model, "spare")
		c.DropImport(m.Model, "local")
		return nil
	}, func(m *model) bool {
		return m.Opset("spare") == 0 && m.function.Opset("spare") == 0 && m.Opset("local") == 1
	}},
	"drop imports that are used inside": {func(c *edit.Change, m *model) error {
		c.SetDomain(m.branch.Nodes[0], "branch", "")
		c.SetDomain(m.function.Body.Nodes[0], "body", "")
		for _, domain := range []string{"branch", "body"} {
			c.ImportOpset(m.Model, m.function, domain, 1)
			c.DropImport(m.Model, domain)
		}
		return nil
	}, func(m *model) bool {
		return m.Opset("branch") == 1 && m.function.Opset("branch") == 0 && m.Opset("body") == 1 &&
			m.function.Opset("body") == 1
	}},
	"another opset": {func(c *edit.Change, m *model) error { c.SetOpset(m.Model, 21); return nil },
		func(m *model) bool {
			return m.Opset("") == 21 && m.function.Opset("") == 21 && m.Opset("local") == 1
		}},
	"an older IR version": {func(c *edit.Change, m *model) error {
		c.LowerIR(m.Model, 2)
		c.LowerIR(m.Model, 5)
		return nil
	}, func(m *model) bool { return m.IRVersion == 2 && len(m.g.Inputs) == 4 }},
	"a newer IR version": {func(c *edit.Change, m *model) error {
		if c.RaiseIR(m.Model, 3); len(m.g.Inputs) != 4 {
			return fmt.Errorf("below version 4 each initializer is an input")
		}
		c.RaiseIR(m.Model, 10)
		c.RaiseIR(m.Model, 4)
		return nil
	}, func(m *model) bool { return m.IRVersion == 10 && m.listed.IsConstant() && len(m.g.Inputs) == 3 }},
}

// TestUndo makes edits of every kind. Undo must restore the model.
func TestUndo(t *testing.T) {
	for name, e := range edits {
		t.Run(name, func(t *testing.T) {
			m := build(t)
			before := state(m.Model)
			c := &edit.Change{Undoable: true}
			if err := e.edit(c, m); err != nil {
				t.Fatal(err)
			}
			if !e.done(m) || state(m.Model) == before {
				t.Fatalf("not changed as it should be:\n%s", state(m.Model))
			}
			if err := c.Undo(); err != nil {
				t.Fatal(err)
			}
			if after := state(m.Model); after != before {
				t.Fatalf("not as it was:\n%s\nbefore\n%s", after, before)
			}
			for _, v := range []string{"new", "new_1", "p", "w_1", "more", "weight"} {
				if m.g.Value(v) != nil {
					t.Errorf("%q is still there", v)
				}
			}
			m = build(t)
			c = new(edit.Change) // a change that is not undoable does the same
			if err := e.edit(c, m); err != nil || !e.done(m) {
				t.Errorf("without undo: %v", err)
			}
		})
	}
}

// TestUndoAll undoes several edits of the same nodes at once.
func TestUndoAll(t *testing.T) {
	m := build(t)
	before := state(m.Model)
	c := edit.Change{Undoable: true}
	for _, name := range []string{"add a node", "replace a node and what only it needed", "set attributes", "rename",
		"another output", "remove what is unread", "add a function"} {
		if err := edits[name].edit(&c, m); err != nil {
			t.Fatal(name, err)
		}
	}
	for range 2 {
		if err := c.Undo(); err != nil {
			t.Fatal(err)
		}
		if after := state(m.Model); after != before {
			t.Fatalf("not as it was:\n%s\nbefore\n%s", after, before)
		}
		c.SetAttr(m.elu, onnx.FloatAttr("alpha", 5)) // a change can be reused
	}
	other := edit.Change{}
	if err := c.Undo(); err != nil {
		t.Fatal(err)
	}
	other.SetAttr(m.elu, onnx.FloatAttr("alpha", 7))
	c.SetAttr(m.elu, onnx.FloatAttr("alpha", 5))
	if err := c.Undo(); err != nil || m.elu.AttrFloat("alpha", 0) != 7 {
		t.Errorf("the edit before the change is undone: %v, %v", m.elu.AttrFloat("alpha", 0), err)
	}
}

// TestWhole undoes edits that replace most of a model.
func TestWhole(t *testing.T) {
	for name, change := range map[string]func(c *edit.Change, m *model) (int, error){
		"functions": func(c *edit.Change, m *model) (int, error) { return c.InlineFunctions(m.Model, nil) },
		"calls": func(c *edit.Change, m *model) (int, error) {
			return c.InlineCalls(m.Model, func(n *onnx.Node) bool { return n == m.call })
		},
		"branches": func(c *edit.Change, m *model) (int, error) {
			return c.InlineBranches(m.Model, func(n *onnx.Node) *onnx.Graph {
				if n == m.choice {
					return m.branch
				}
				return nil
			})
		},
		"nodes": func(c *edit.Change, m *model) (int, error) {
			c.SetInput(m.last, 0, m.x)
			c.Drop(m.add)
			return 1, c.Finish()
		},
	} {
		for _, whole := range []bool{false, true} {
			m := build(t)
			before, g := m.Graph.Text()+fmt.Sprint(len(m.Functions)), m.Graph
			c := &edit.Change{Undoable: true}
			if whole {
				c = edit.Whole(m.Model)
			}
			if n, err := change(c, m); n != 1 || err != nil {
				t.Fatalf("%s: %d, %v", name, n, err)
			}
			if m.Graph.Text() == before {
				t.Errorf("%s: not changed", name)
			}
			if err := c.Undo(); err != nil {
				t.Fatal(err)
			}
			if after := m.Graph.Text() + fmt.Sprint(len(m.Functions)); after != before {
				t.Errorf("%s: not as it was:\n%s\nbefore\n%s", name, after, before)
			}
			if made := m.Graph != g; made != (whole || name != "nodes") {
				t.Errorf("%s: whole %v, and graphs made anew: %v", name, whole, made)
			}
		}
	}
}

// TestJoin adds a later change to an earlier one, which finishes and undoes both.
func TestJoin(t *testing.T) {
	m := build(t)
	before := state(m.Model)
	first, later := edit.Change{Undoable: true}, edit.Change{Undoable: true}
	first.SetAttr(m.elu, onnx.FloatAttr("alpha", 3))
	v := m.g.NewValue("new")
	later.Insert(m.add, later.NewNode(m.g, "Abs", []*onnx.Value{m.a}, []*onnx.Value{v}))
	later.SetInput(m.add, 0, v)
	later.SetAttr(m.elu, onnx.FloatAttr("alpha", 4))
	later.SetInput(m.relu, 0, m.call.Outputs[0])
	later.SetInput(m.last, 0, m.call.Outputs[0])
	later.DropConstants(m.alone)
	later.Drop(m.add)
	first.Join(&later)
	if err := first.Finish(); err != nil {
		t.Fatal(err)
	}
	if m.add.Graph != nil || m.g.Value("alone") != nil || m.g.Nodes[len(m.g.Nodes)-2] != m.relu &&
		m.g.Nodes[len(m.g.Nodes)-1] != m.relu || m.g.Value("new") != nil {
		t.Errorf("not finished:\n%s", m.g.Text())
	}
	if err := first.Undo(); err != nil {
		t.Fatal(err)
	}
	if after := state(m.Model); after != before {
		t.Errorf("not as it was:\n%s\nbefore\n%s", after, before)
	}
}

// TestCycle: nodes that read each other are an error.
func TestCycle(t *testing.T) {
	m := build(t)
	c := edit.Change{Undoable: true}
	c.SetInput(m.elu, 0, m.b)
	if err := c.Finish(); err == nil || !strings.Contains(err.Error(), "cannot be put in order: ") {
		t.Errorf("a cycle: %v", err)
	}
}

// TestMisuse: changes that Undo could not undo panic.
func TestMisuse(t *testing.T) {
	m := build(t)
	for name, f := range map[string]func(){
		"undo of nothing that was kept": func() { _ = new(edit.Change).Undo() },
		"a whole after its parts": func() {
			c := edit.Change{Undoable: true}
			c.RemoveAttr(m.elu, "alpha")
			_, _ = c.InlineFunctions(m.Model, nil)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestDefaults: from IR version 4 on, an initializer that is an input is a default, which callers may replace.
func TestDefaults(t *testing.T) {
	m := build(t)
	m.IRVersion = 4
	if new(edit.Change).RaiseIR(m.Model, 10); len(m.g.Inputs) != 4 {
		t.Errorf("inputs %q", onnx.Names(m.g.Inputs))
	}
}

// TestOrigin: a node that replaces nodes of the tool names the nodes of the original model, each once.
func TestOrigin(t *testing.T) {
	a, c := &onnx.Node{Name: "a"}, &onnx.Node{Name: "c"}
	made := &onnx.Node{Name: "made", Metadata: edit.Origin("1", "First", a, &onnx.Node{Name: "b"})}
	e := edit.Editor{Version: "2"}
	want := []onnx.Entry{{Key: edit.MetaRule, Value: "Second"}, {Key: edit.MetaSourceNodes, Value: `["a","b","c"]`},
		{Key: edit.MetaVersion, Value: "2"}}
	if got := e.Origin("Second", a, made, c); !slices.Equal(got, want) {
		t.Errorf("origin %v, want %v", got, want)
	}
	if got := e.Origin("Second"); !slices.Equal(got, slices.Delete(want, 1, 2)) {
		t.Errorf("origin without replaced nodes %v", got)
	}
	if got := e.Origin("Second", c); len(got) != 3 || got[1].Value != `["c"]` {
		t.Errorf("origin %v of c", got)
	}
	made.Metadata = []onnx.Entry{{Key: "other", Value: `["x"]`}, {Key: edit.MetaSourceNodes, Value: `["a", 1]`}}
	if got := edit.SourceNodes(made); got != nil {
		t.Errorf("sources %q of a broken list", got)
	}
	made.Metadata = append(made.Metadata, onnx.Entry{Key: edit.MetaFormat, Value: "q4_0"})
	if edit.FormatOf(made) != "q4_0" || edit.FormatOf(a) != "" {
		t.Error("not the format of the metadata")
	}
	m := build(t)
	n := e.AddNode(new(edit.Change), m.g, "Rule", "Abs", m.g.NewValue("new"), m.x)
	if n.Name != "new_Abs" || n.Input(0) != m.x || !slices.Equal(n.Metadata, e.Origin("Rule")) {
		t.Errorf("added %q with %v", n.Name, n.Metadata)
	}
}
