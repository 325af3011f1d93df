package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	ID   string // of the file, function, kind and text; edits elsewhere and seeds do not change it
	Kind string
	File string // relative to the module
	Func string
	Line int
	Old  string
	New  string

	order      string // the place in the order of drawing
	start, end int    // the bytes of the file that New replaces
	anywhere   bool   // outside functions, where coverage does not tell which tests reach it
	block      [2]int // its line and column in coverage
}

// mutants returns every mutant of the Go files in folder, in an order that depends only on the seed: a change of the
// code does not reorder other mutants.
func mutants(folder string, seed int64) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var found []mutant
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(file) {
			continue
		}
		found = append(found, mutantsOf(set, file, filepath.ToSlash(path), source, seed)...)
	}
	return found, nil
}

func mutantsOf(set *token.FileSet, file *ast.File, path string, source []byte, seed int64) []mutant {
	seen := map[string]int{}
	var found []mutant
	for _, decl := range file.Decls {
		name := "package"
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
			if f.Recv != nil {
				name = receiver(f) + "." + name
			}
		}
		v := &visitor{source: source, offset: func(p token.Pos) int { return set.Position(p).Offset }}
		_, isFunc := decl.(*ast.FuncDecl)
		moved := moved(decl)
		v.add = func(kind string, from, to token.Pos, replacement string, about ast.Node) {
			at := set.Position(from)
			m := mutant{Kind: kind, File: path, Func: name, Line: at.Line, New: replacement,
				start: v.offset(from), end: v.offset(to)}
			m.Old = string(source[m.start:m.end])
			m.anywhere, m.block = !isFunc, [2]int{at.Line, at.Column}
			for _, r := range moved {
				if r.from <= from && from < r.to {
					counted := set.Position(r.counted)
					m.block = [2]int{counted.Line, counted.Column}
				}
			}
			key := fmt.Sprint(path, " ", name, " ", kind, " ", v.text(about), " ", m.Old, " ", m.New)
			seen[key]++
			sum := func(seed int64) string {
				sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d", seed, key, seen[key]))
				return hex.EncodeToString(sum[:6])
			}
			m.ID, m.order = sum(1), sum(seed)
			found = append(found, m)
		}
		ast.Inspect(decl, v.visit)
	}
	return found
}

// countedAt is a range of code that coverage counts at another place, and not where it is.
type countedAt struct{ from, to, counted token.Pos }

// moved lists the code that coverage counts elsewhere, outer code first: the expressions of cases with their switch,
// and the rest of a statement after a function literal with the statement's begin.
func moved(decl ast.Decl) (list []countedAt) {
	ast.Inspect(decl, func(n ast.Node) bool {
		s, ok := n.(ast.Stmt)
		if !ok {
			return true
		}
		if s, ok := s.(*ast.SwitchStmt); ok {
			for _, clause := range s.Body.List {
				for _, e := range clause.(*ast.CaseClause).List {
					list = append(list, countedAt{e.Pos(), e.End(), s.Pos()})
				}
			}
		}
		literals, end := literalsOf(s)
		for i, l := range literals {
			to := end
			if i+1 < len(literals) {
				to = literals[i+1].Body.Pos()
			}
			list = append(list, countedAt{l.End(), to, s.Pos()})
		}
		return true
	})
	return list
}

// literalsOf lists the function literals of a statement itself, without the statements in it, and where this part ends.
func literalsOf(s ast.Stmt) (list []*ast.FuncLit, end token.Pos) {
	end = s.End()
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			list = append(list, n)
			return false
		case *ast.BlockStmt:
			end = min(end, n.Pos())
			return false
		case *ast.CaseClause, *ast.CommClause:
			return false
		}
		return true
	})
	return list, end
}

func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	if ident, ok := t.(*ast.Ident); ok {
		return ident.Name
	}
	return "?"
}

type visitor struct {
	source []byte
	offset func(token.Pos) int
	add    func(kind string, from, to token.Pos, replacement string, about ast.Node)
}

func (v *visitor) text(n ast.Node) string {
	return string(v.source[v.offset(n.Pos()):v.offset(n.End())])
}

// swaps maps operators to their replacements.
var swaps = map[token.Token]struct {
	kind string
	with []string
}{
	token.LSS:        {"comparison", []string{"<=", ">="}},
	token.LEQ:        {"comparison", []string{"<", ">"}},
	token.GTR:        {"comparison", []string{">=", "<="}},
	token.GEQ:        {"comparison", []string{">", "<"}},
	token.EQL:        {"comparison", []string{"!="}},
	token.NEQ:        {"comparison", []string{"=="}},
	token.LAND:       {"logic", []string{"||"}},
	token.LOR:        {"logic", []string{"&&"}},
	token.ADD:        {"arithmetic", []string{"-"}},
	token.SUB:        {"arithmetic", []string{"+"}},
	token.MUL:        {"arithmetic", []string{"/"}},
	token.QUO:        {"arithmetic", []string{"*"}},
	token.REM:        {"arithmetic", []string{"*"}},
	token.ADD_ASSIGN: {"arithmetic", []string{"-="}},
	token.SUB_ASSIGN: {"arithmetic", []string{"+="}},
	token.INC:        {"arithmetic", []string{"--"}},
}

func (v *visitor) swap(op token.Token, at token.Pos, about ast.Node) {
	for _, with := range swaps[op].with {
		v.add(swaps[op].kind, at, at+token.Pos(len(op.String())), with, about)
	}
}

// visit adds the mutants of one node, and reports whether to descend.
func (v *visitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		// Most arguments of make are capacities; a panic means that the caller is wrong.
		if ident, ok := n.Fun.(*ast.Ident); ok && (ident.Name == "make" || ident.Name == "panic") {
			return false
		}
	case *ast.BinaryExpr:
		if n.Op == token.ADD && (isString(n.X) || isString(n.Y)) {
			return true
		}
		v.swap(n.Op, n.OpPos, n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			v.add("logic", n.Pos(), n.X.Pos(), "", n)
		}
	case *ast.IncDecStmt:
		v.swap(n.Tok, n.TokPos, n)
	case *ast.AssignStmt:
		v.swap(n.Tok, n.TokPos, n)
		if n.Tok == token.ASSIGN {
			v.add("statement", n.Pos(), n.End(), "", n)
		}
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && v.text(call.Fun) != "panic" {
			v.add("statement", n.Pos(), n.End(), "", n)
		}
	case *ast.BasicLit:
		if value, err := strconv.ParseInt(n.Value, 10, 62); n.Kind == token.INT && err == nil {
			v.add("number", n.Pos(), n.End(), strconv.FormatInt(value+1, 10), n)
		}
	case *ast.BranchStmt:
		switch {
		case n.Label != nil:
		case n.Tok == token.BREAK:
			v.add("loop", n.Pos(), n.End(), "continue", n)
		case n.Tok == token.CONTINUE:
			v.add("loop", n.Pos(), n.End(), "break", n)
		}
	case *ast.IfStmt:
		if n.Else == nil && leaves(n.Body) {
			v.add("guard", n.Cond.Pos(), n.Cond.End(), "false && ("+v.text(n.Cond)+")", n.Cond)
		}
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			if ident, ok := result.(*ast.Ident); ok && slices.Contains([]string{"true", "false"}, ident.Name) {
				v.add("result", ident.Pos(), ident.End(), strconv.FormatBool(ident.Name != "true"), n)
			}
		}
	}
	return true
}

func isString(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isString(e.X) || isString(e.Y)
	}
	return false
}

// leaves reports whether a body ends by leaving the surrounding code, except by a panic.
func leaves(body *ast.BlockStmt) bool {
	if len(body.List) == 0 {
		return false
	}
	switch body.List[len(body.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}
