package layers

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// builders are the folders whose packages build graphs and never change a user's graph. All others change graphs only
// through rewrite/edit.
var builders = map[string]string{
	"onnx":                "reads graphs, and has the methods that change them",
	"rewrite/edit":        "is the one that changes them",
	"fused":               "writes the definitions of ops",
	"patterns":            "writes replacements, and regions that are run to find out what they compute",
	"reference":           "looks at copies of nodes",
	"ort":                 "writes models that try a provider",
	"tune":                "writes models of one node to measure it",
	"llm/checkpoints":     "writes models for tests",
	"rewrite/rewritetest": "writes models for tests",
	"internal":            "writes models for tests",
	"bench":               "writes models to measure",
}

// tried are files of other packages that build models beside the user's, to run parts of it.
var tried = map[string]string{
	"cmd/mojo-patch/prober/prober.go": "a fused op, to run its kernel",
	"cmd/mojo-patch/prober/try.go":    "the same, for its definition",
	"llm/generate/chooser.go":         "the choice of tokens",
	"rewrite/quantized/check.go":      "the first rows of a weight",
	"rewrite/quantized/half_check.go": "the first outputs of a weight",
	"rewrite/quantized/mixture.go":    "the first experts",
	"rewrite/quantized/qmoe.go":       "the first experts of another tool",
	"rewrite/sites/crowd.go":          "experts with one of their inputs computed",
	"rewrite/sites/runtime.go":        "a site, to run it in onnxruntime",
}

// changing lists the methods of package onnx that change a graph, adding those that only add. Fields are changed by
// assignments.
var (
	changing = []string{"InlineBranches", "InlineCalls", "InlineFunctions", "InsertAt", "RemoveAttr", "RemoveNodes",
		"RemovePort", "RemoveUnusedInitializers", "Rename", "Save", "SaveInput", "SetAttr", "SetInput", "Snapshot",
		"Sort", "TakeOutput"}
	adding = []string{"AddInitializer", "AddInput", "AddNode", "AddOutput", "ImportOpset", "NewNode", "NewSubgraph"}
	fields = map[string][]string{
		"Function": {"Body", "Opsets", "Overload"},
		"Graph":    {"Inputs", "Nodes", "Outputs"},
		"Model":    {"Functions", "Graph", "IRVersion", "Opsets"},
		"Node":     {"Attributes", "Domain", "Graph", "Inputs", "OpType", "Outputs", "Overload"},
		"Value":    {"Const", "IsInput", "Output", "Producer"},
	}
	// written are the fields that may be set on a new object.
	written = []string{"Domain", "Functions", "Overload"}
	// makers return objects that the calling function may change freely.
	makers = []string{"AddNode", "Clone", "New", "NewFunction", "NewNode", "NewSubgraph"}
)

// TestOnlyEditChanges demands that only package rewrite/edit changes graphs.
func TestOnlyEditChanges(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for file, paths := range importsBelow(t, root) {
		folder := filepath.ToSlash(filepath.Dir(file))
		if !strings.HasSuffix(file, "_test.go") && slices.Contains(paths, "onnx") && !builds(folder) {
			folders["./"+folder] = true
		}
	}
	list, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: root},
		slices.Sorted(maps.Keys(folders))...)
	if err != nil || len(list) < 20 {
		t.Fatalf("%d packages: %v", len(list), err)
	}
	used := map[string]bool{}
	for _, p := range list {
		for _, err := range p.Errors {
			t.Error(err)
		}
		for _, f := range p.Syntax {
			at := p.Fset.Position(f.Pos()).Filename
			name, err := filepath.Rel(root, at)
			if err != nil {
				t.Fatal(err)
			}
			name = filepath.ToSlash(name)
			for _, c := range changesIn(f, p.TypesInfo) {
				if c.builds && tried[name] != "" {
					used[name] = true
					continue
				}
				line := p.Fset.Position(c.at.Pos()).Line
				t.Errorf("%s:%d: %s: change a graph through rewrite/edit", name, line, c.what)
			}
		}
	}
	for name := range tried {
		if !used[name] {
			t.Errorf("%s builds no model: take it out of the list", name)
		}
	}
}

// builds reports whether a folder is in builders or below one of them.
func builds(folder string) bool {
	for ; folder != "."; folder = path.Dir(folder) {
		if builders[folder] != "" {
			return true
		}
	}
	return false
}

// change is a statement that changes a graph; builds means that it is allowed on a graph under construction.
type change struct {
	at     ast.Node
	what   string
	builds bool
}

// changesIn finds the calls and assignments in a file that change graphs not made in the same function.
func changesIn(f *ast.File, info *types.Info) (found []change) {
	made := map[types.Object]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Rhs) == 1 && makes(a.Rhs[0]) {
			if x, ok := a.Lhs[0].(*ast.Ident); ok {
				made[info.ObjectOf(x)] = true
			}
		}
		return true
	})
	own := func(x ast.Expr) bool { return isOwn(x, info, made) }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || own(s.X) {
				return true
			}
			m, ok := info.Uses[s.Sel].(*types.Func)
			if !ok || m.Signature().Recv() == nil || !isOnnx(m) {
				return true
			}
			if add := slices.Contains(adding, m.Name()); add || slices.Contains(changing, m.Name()) {
				found = append(found, change{n, "call of " + m.Name(), add})
			}
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				if i, ok := to.(*ast.IndexExpr); ok {
					to = i.X
				}
				s, ok := to.(*ast.SelectorExpr)
				if !ok || own(s.X) || info.Selections[s] == nil || !isOnnx(info.Selections[s].Obj()) {
					continue
				}
				name := s.Sel.Name
				recv := info.Selections[s].Recv().String()
				if recv = recv[strings.LastIndexByte(recv, '.')+1:]; slices.Contains(fields[recv], name) {
					found = append(found, change{n, fmt.Sprintf("assignment to %s.%s", recv, name),
						slices.Contains(written, name)})
				}
			}
		}
		return true
	})
	return found
}

func isOnnx(o types.Object) bool { return o.Pkg() != nil && o.Pkg().Path() == module+"onnx" }

// makes reports whether an expression is a call that makes a model, a graph or a node.
func makes(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(makers, s.Sel.Name)
}

// isOwn reports whether an expression is part of an object made in the same function, or of a copy in a variable.
func isOwn(x ast.Expr, info *types.Info, made map[types.Object]bool) bool {
	for {
		switch e := x.(type) {
		case *ast.SelectorExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.CallExpr:
			return makes(e)
		case *ast.Ident:
			o, ok := info.ObjectOf(e).(*types.Var)
			if !ok {
				return false
			}
			named, isStruct := o.Type().(*types.Named)
			return made[o] || isStruct && isOnnx(named.Obj())
		default:
			return false
		}
	}
}
