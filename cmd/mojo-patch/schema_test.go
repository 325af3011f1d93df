package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/audit"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/bench"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/bisect"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/doctor"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/export"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/generate"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/inspect"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/kernels"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/parts"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/plans"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/quantize"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/run"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/tokenize"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/tune"
	versioning "github.com/mojo-patch/mojo-patch/cmd/mojo-patch/version"
	loading "github.com/mojo-patch/mojo-patch/cmd/mojo-patch/weights"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/rewrite"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
)

// schemaTypes maps each schema to the type that its JSON is made from.
var schemaTypes = map[string]any{
	"audit":            audit.Report{},
	"audit-ranges":     audit.RangesReport{},
	"bench":            bench.Result{},
	"bisect":           bisect.Report{},
	"detokenize":       tokenize.DecodedResult{},
	"diff":             compare.Comparisons{},
	"doctor":           doctor.Result{},
	"export-genai":     export.GenAI{},
	"export-triton":    export.Triton{},
	"extract":          parts.Extracted{},
	"generate":         generate.Result{},
	"generate-compare": generate.Comparison{},
	"inspect":          inspect.Census{},
	"inspect-dims":     inspect.DimsReport{},
	"inspect-why":      inspect.Why{},
	"kernels":          kernels.Result{},
	"plan":             rewrite.PlanFile{},
	"quantize":         quantize.Report{},
	"report":           planning.ReportResult{},
	"revert":           rewrite.RevertReport{},
	"run":              run.Result{},
	"run-mode":         run.ModeResult{},
	"shard":            plans.Result{},
	"tokenize":         tokenize.Result{},
	"tune":             tune.Result{},
	"version":          versioning.Result{},
	"weights-load":     weights.Report{},
	"weights-show":     loading.ShownWeights{},
	"weights-strip":    weights.StripReport{},
}

var writeSchemas = flag.Bool("write-schemas", false, "write docs/schemas anew")

const (
	repository   = "../.."
	module       = "github.com/mojo-patch/mojo-patch"
	program      = module + "/cmd/mojo-patch"
	schemaFolder = repository + "/docs/schemas"
)

// schemaName distinguishes types of one name by their package. The program is one: its folders are not in the names.
func schemaName(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	if strings.HasPrefix(t.PkgPath(), program+"/") {
		return path.Base(program) + "." + strings.ToLower(t.Name()[:1]) + t.Name()[1:]
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

// schemaOfNumber handles numbers that write NaN and infinities as strings.
func schemaOfNumber(t reflect.Type) *jsonschema.Schema {
	if t != reflect.TypeFor[golden.Number]() {
		return nil
	}
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "number"},
		{Type: "string", Enum: []any{"NaN", "+Inf", "-Inf"}}}}
}

// schemaOf makes the schema of a result from its Go type and the comments there.
func schemaOf(name string, result any, comments map[string]string) ([]byte, error) {
	r := &jsonschema.Reflector{CommentMap: comments, ExpandedStruct: true, Namer: schemaName, Mapper: schemaOfNumber}
	s := r.Reflect(result)
	s.ID = jsonschema.ID(fmt.Sprintf("https://%s/docs/schemas/%s-%d.json", module, name, cli.JSONSchema))
	s.Title = fmt.Sprintf("mojo-patch: %s, version %d", name, cli.JSONSchema)
	version, ok := s.Properties.Get("schema")
	if !ok {
		return nil, fmt.Errorf("%T has no field schema", result)
	}
	version.Const = cli.JSONSchema
	if _, plan := result.(rewrite.PlanFile); plan {
		version.Const = rewrite.PlanSchema
		s.Definitions["rewrite.PlannedSite"].Required = []string{"apply", "id"} // people may write plans with less
	}
	b, err := json.Marshal(s)
	// One line for each property keeps diffs readable; more lines and spaces would be an eighth of the bytes.
	return append(bytes.ReplaceAll(b, []byte("},"), []byte("},\n")), '\n'), err
}

// addComments collects the comments of a package's types and fields. The library's own search skips unexported types.
func addComments(comments map[string]string, folder string) error {
	files, err := filepath.Glob(filepath.Join(repository, folder, "*.go"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no sources in %s (%v)", folder, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				key := module + "/" + folder + "." + t.Name.Name
				comments[key] = oneLine(t.Doc, g.Doc)
				if s, ok := t.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, n := range f.Names {
							comments[key+"."+n.Name] = oneLine(f.Doc, f.Comment)
						}
					}
				}
			}
		}
	}
	return nil
}

func oneLine(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

// TestSchemas compares docs/schemas with the types that commands print, and every --json with docs/schemas.
func TestSchemas(t *testing.T) {
	comments := map[string]string{}
	own, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{"golden", "llm/generate", "llm/weights", "ort/providers", "patterns/reason",
		"rewrite", "rewrite/dims", "rewrite/inline", "rewrite/latentcache", "rewrite/pagedcache", "rewrite/precision",
		"rewrite/products", "rewrite/prove", "rewrite/quantize", "rewrite/quantized", "rewrite/registry",
		"rewrite/sampling", "rewrite/staticcache", "rewrite/streams", "rewrite/target", "trace"}
	for _, file := range own {
		folders = append(folders, "cmd/mojo-patch/"+filepath.ToSlash(filepath.Dir(file)))
	}
	for _, folder := range slices.Compact(folders) {
		if err := addComments(comments, folder); err != nil {
			t.Fatal(err)
		}
	}
	for name, result := range schemaTypes {
		b, err := schemaOf(name, result, comments)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file := filepath.Join(schemaFolder, name+".json")
		if *writeSchemas {
			if err := os.WriteFile(file, b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, b) {
			t.Errorf("%s is not what the command prints (%v): go test ./cmd/mojo-patch -run TestSchemas "+
				"-args -write-schemas", file, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(schemaFolder, "*.json"))
	if err != nil || len(files) != len(schemaTypes) {
		t.Errorf("%d files in %s for %d results (%v)", len(files), schemaFolder, len(schemaTypes), err)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		names := strings.Fields(c.Annotations[cli.SchemasOf])
		if c.Flags().Lookup("json") != nil && len(names) == 0 {
			t.Errorf("%s prints JSON without a schema: name it in JSONFlag", c.CommandPath())
		}
		for _, name := range names {
			if schemaTypes[name] == nil {
				t.Errorf("%s prints %q, which has no schema", c.CommandPath(), name)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&cli.App{}))
}

// Environment variables of the scripts: the folder of the schemas, and the folder that records which schemas were
// checked.
const (
	schemasVariable = "TEST_SCHEMAS"
	metVariable     = "TEST_SCHEMAS_MET"
)

// checked runs the program for scripts, and validates its JSON against a schema of the command.
func checked() {
	args := os.Args[1:]
	folder := os.Getenv(schemasVariable)
	if folder == "" || !slices.Contains(args, "--json") {
		main()
		return
	}
	limitGarbage()
	cli.CleanInterrupts(os.Exit)
	var out bytes.Buffer
	code := execute(args, io.MultiWriter(os.Stdout, &out), os.Stderr)
	if out.Len() > 0 {
		if err := conforms(args, folder, out.Bytes()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
	}
	os.Exit(code)
}

func conforms(args []string, folder string, out []byte) error {
	c, _, err := newRoot(&cli.App{}).Find(args)
	if err != nil {
		return err
	}
	value, err := validator.UnmarshalJSON(bytes.NewReader(out))
	if err != nil {
		return fmt.Errorf("%q prints no JSON: %w", args, err)
	}
	var failures []string
	for _, name := range strings.Fields(c.Annotations[cli.SchemasOf]) {
		schema, err := validator.NewCompiler().Compile(filepath.Join(folder, name+".json"))
		if err != nil {
			return err
		}
		if err = schema.Validate(value); err == nil {
			return os.WriteFile(filepath.Join(os.Getenv(metVariable), name), nil, 0o666)
		}
		failures = append(failures, fmt.Sprintf("%q: %v", args, err))
	}
	return fmt.Errorf("the result is not as docs/schemas says:\n%s", strings.Join(failures, "\n"))
}
