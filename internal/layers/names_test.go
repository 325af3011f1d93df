package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
)

// others are the names of our ops and attributes that ops of the standard or of onnxruntime have, too.
var others = []string{"Attention", "LinearAttention", "PagedAttention", "RotaryEmbedding", "GatedRMSNorm", "MoE",
	"QMoE", "activation", "activations", "alpha", "axis", "causal", "epsilon", "interleaved", "k", "layout", "plan",
	"rank", "scale", "softcap"}

// accessors are the functions and methods whose first argument is the name of an attribute.
var accessors = []string{"Attr", "AttrInt", "AttrFloat", "AttrString", "IntAttr", "BoolAttr", "FloatAttr", "StringAttr"}

// TestNamesAreGenerated counts string literals that are the name of one of our ops or attributes, of which package
// fused has constants and structs. These are errors:
//   - the name of an op that no other domain has, anywhere
//   - the name of any op that is looked up in the catalogue, compared with the Op of a match or a call, or joined by &&
//     to a comparison with fused.Domain
//   - the name of an attribute of several words, anywhere
//   - the name of an attribute of one word that no other op has, if it is the argument of an accessor or compared
//     with a Name
//   - the name of any attribute that is read as only a fused.Site allows it: Attr(name).Int
//
// The test skips tests, generated files, package fused, the packages that it uses or that are below it, and
// internal/spellings, whose names are names of patterns.
func TestNamesAreGenerated(t *testing.T) {
	root := filepath.Join("..", "..")
	first := slices.IndexFunc(rooms, func(r room) bool { return r.path == "fused" })
	files := 0
	for name := range importsBelow(t, root) {
		at := roomOf(filepath.ToSlash(filepath.Dir(name)))
		if at <= first || strings.HasSuffix(name, "_test.go") || rooms[at].path == "internal/spellings" ||
			strings.HasPrefix(rooms[at].path, "fused/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		files++
		for _, line := range literals(t, name, src) {
			t.Errorf("%s: use a constant or a struct of package fused (fused/names_gen.go)", line)
		}
	}
	if files < 300 {
		t.Errorf("%d files: the sources were not found", files)
	}
}

// TestNamesAreSeen holds literals against the forms that TestNamesAreGenerated promises to see.
func TestNamesAreSeen(t *testing.T) {
	for code, want := range map[string]int{
		`x := []string{"TopKRouter", "Attention", "GLU"}`:                      2,
		`fused.Lookup("MoE")`:                                                  1,
		`use(m.Op == "Attention", n.OpType == "Attention")`:                    1,
		`switch m.Op { case "QMoE": }`:                                         1,
		`switch n.OpType { case "QMoE": }`:                                     0,
		`use(n.Domain == fused.Domain && n.OpType == "MoE")`:                   1,
		`use(n.Domain == onnx.Microsoft && n.OpType == "MoE")`:                 0,
		`use("q_layout", "layout", "window")`:                                  1,
		`use(n.AttrInt("window", 0), onnx.StringAttr("packing", ""))`:          2,
		`use(n.AttrInt("axis", 0), n.Attr("scale"), site.Attr("scale").Float)`: 1,
		`use(a.Name == "groups", a.Name == "axis", b.Text == "groups")`:        1,
	} {
		found := literals(t, "x.go", []byte("package x\nfunc f() {\n"+code+"\n}\n"))
		if len(found) != want {
			t.Errorf("%s: %d literals, not %d: %q", code, len(found), want, found)
		}
	}
}

// literals lists the literals of a file that TestNamesAreGenerated describes.
func literals(t *testing.T, name string, src []byte) []string {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	found := map[token.Pos]string{}
	note := func(is func(name string) bool, list ...ast.Expr) {
		for _, e := range list {
			l, ok := e.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				continue
			}
			if text, err := strconv.Unquote(l.Value); err == nil && is(text) {
				found[l.Pos()] = fmt.Sprintf("%s: %q", set.Position(l.Pos()), text)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			note(func(name string) bool {
				return !slices.Contains(others, name) && isOp(name) || isAttribute(name) && strings.Contains(name, "_")
			}, n)
		case *ast.CallExpr:
			if called := selected(n.Fun); called == "Lookup" {
				note(isOp, n.Args...)
			} else if slices.Contains(accessors, called) && len(n.Args) > 0 {
				note(isOurs, n.Args[0])
			}
		case *ast.SelectorExpr: // Attr(name).Int
			if call, ok := n.X.(*ast.CallExpr); ok && selected(call.Fun) == "Attr" && len(call.Args) == 1 {
				note(isAttribute, call.Args[0])
			}
		case *ast.SwitchStmt:
			for _, s := range n.Body.List {
				if c := s.(*ast.CaseClause); selected(n.Tag) == "Op" {
					note(isOp, c.List...)
				}
			}
		case *ast.BinaryExpr:
			switch {
			case n.Op == token.LAND && inDomain(n):
				ast.Inspect(n, func(n ast.Node) bool {
					if l, ok := n.(*ast.BasicLit); ok {
						note(isOp, l)
					}
					return true
				})
			case n.Op != token.EQL && n.Op != token.NEQ:
			case selected(n.X) == "Op":
				note(isOp, n.Y)
			case selected(n.X) == "Name":
				note(isOurs, n.Y)
			}
		}
		return true
	})
	var list []string
	for _, line := range found {
		list = append(list, line)
	}
	slices.Sort(list)
	return list
}

// inDomain reports whether an operand of && is a comparison with fused.Domain.
func inDomain(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	return b.Op == token.LAND && (inDomain(b.X) || inDomain(b.Y)) || b.Op == token.EQL && isDomain(b.Y)
}

func isDomain(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Domain" {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "fused"
}

// selected is the name of a field or a method, or of a function; empty for other expressions.
func selected(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func isOp(name string) bool { return fused.Lookup(name) != nil }

func isAttribute(name string) bool {
	return slices.ContainsFunc(fused.Ops(), func(o *fused.Op) bool {
		return slices.ContainsFunc(o.Attributes, func(a fused.AttributeSpec) bool { return a.Name == name })
	})
}

// isOurs reports whether no other op has the attribute.
func isOurs(name string) bool { return isAttribute(name) && !slices.Contains(others, name) }
