package planning

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/docs/schemas"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// plannedFlags are the flags that decide which sites exist and how they are checked. A plan file keeps those that were
// given, and apply --plan reads them from there. The other flags are paths on this machine.
var plannedFlags = []string{"include", "verify", "check-kernels", "patterns", "inline", "assume-available",
	"allow-missing-weights", "backend", "target", "shape", "accuracy-level", "dtype", "last-logits", "sample",
	"runs-on", "for", "cache", "cache-type", "past-length", "merge-products"}

// Given returns the named flags that were given, with their values.
func Given(c *cobra.Command, names []string) map[string][]string {
	flags := map[string][]string{}
	c.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			flags[f.Name] = list.GetSlice()
		} else {
			flags[f.Name] = []string{f.Value.String()}
		}
	})
	return flags
}

// PlanFileFlags are the flags of a command that applies a plan.
type PlanFileFlags struct {
	Path  string // --plan
	force bool
	File  *rewrite.PlanFile // nil without a plan
}

// AddTo adds the flags to a command.
func (f *PlanFileFlags) AddTo(c *cobra.Command) {
	c.Flags().StringVar(&f.Path, "plan", "",
		"replace only the sites of this plan (match -o writes plans); its flags apply unless they are also given "+
			"here")
	cli.CompleteFile(c, "plan", "json")
	c.Flags().BoolVar(&f.force, "force", false,
		"apply it even if it was made for another file, with other patterns or by another version")
	cli.Rules(c, "force requires plan", "plan excludes only skip node site: a plan chooses the sites")
}

// Read reads the plan, if any, and sets its flags that were not given on the command line.
func (f *PlanFileFlags) Read(c *cobra.Command) error {
	if f.Path == "" {
		return nil
	}
	var err error
	if f.File, err = readPlan(f.Path); err != nil {
		return err
	}
	for name, values := range f.File.Flags {
		if !slices.Contains(plannedFlags, name) {
			return fmt.Errorf("%s: a plan cannot hold the flag %q; it can hold %s", f.Path, name,
				strings.Join(plannedFlags, ", "))
		}
		if c.Flags().Changed(name) || c.Flags().Lookup(name) == nil { // bisect changes no caches
			continue
		}
		for _, v := range values {
			if name == "patterns" {
				v = besidePlan(f.Path, v)
			}
			if err := c.Flags().Set(name, v); err != nil {
				return fmt.Errorf("%s: --%s: %w", f.Path, name, err)
			}
		}
	}
	return nil
}

// readPlan reads a plan. If it violates the schema of plans, the error says where.
func readPlan(path string) (*rewrite.PlanFile, error) {
	b, err := rewrite.PlanText(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the plan: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s is not a plan: it is not JSON: %w", path, err)
	}
	if o, ok := value.(map[string]any); !ok || fmt.Sprint(o["schema"]) != fmt.Sprint(rewrite.PlanSchema) {
		return rewrite.ReadPlan(path) // its error names the known versions
	}
	if err := planSchema().Validate(value); err != nil {
		_, where, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("%s is not a valid plan:\n%s\n(docs/schemas/plan.json describes plans)", path, where)
	}
	return rewrite.ReadPlan(path)
}

var planSchema = sync.OnceValue(func() *jsonschema.Schema {
	const name = "plan.json"
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Plan))
	c := jsonschema.NewCompiler()
	if err == nil {
		err = c.AddResource(name, schema)
	}
	if err != nil {
		panic(err) // the schema is part of the program
	}
	return c.MustCompile(name)
})

// besidePlan returns the path of a file that a plan names: relative to the plan if the file exists there, so that a
// folder with both can be moved, or else unchanged.
func besidePlan(plan, path string) string {
	beside := filepath.Join(filepath.Dir(plan), path)
	if _, err := os.Stat(beside); err != nil || filepath.IsAbs(path) {
		return path
	}
	return beside
}

// Fits returns an error if the plan was made for another model or other patterns, unless --force is set.
func (f *PlanFileFlags) Fits(path, patterns string) error {
	if f.File == nil || f.force {
		return nil
	}
	sum, err := onnx.SHA256(path)
	if err == nil {
		err = f.File.Fits(sum, patterns, cli.Version())
	}
	if err != nil {
		return fmt.Errorf("the plan %s is not for %s: %w\n(use --force to apply it anyway)", f.Path, path, err)
	}
	return nil
}

// SavePlan writes the plan that match found to a temporary file.
func (f *PlanFlags) SavePlan(c *cobra.Command, out, model string, p *rewrite.PlanFile) (*atomicfile.Prepared, error) {
	sum, err := onnx.SHA256(model)
	if err != nil {
		return nil, err
	}
	described := *p.Model
	described.SHA256 = sum
	p.Model, p.Flags = &described, f.Preset.planned(Given(c, plannedFlags))
	file, err := atomicfile.Prepare(out, p.Write)
	if err != nil {
		err = fmt.Errorf("cannot write the plan: %w", err)
	}
	return file, err
}
