package rewrite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// PlanSchema is the version of the format of plan files.
const PlanSchema = 1

// PlanFile is a plan for one model as a file: the sites to replace. Users may edit it between Plan and Run.
type PlanFile struct {
	Schema   int         `json:"schema"`
	Tool     string      `json:"tool"`     // the version that made the plan
	Patterns string      `json:"patterns"` // digest of the patterns (patterns.Set.Digest)
	Model    *FileReport `json:"model"`
	// Flags are the flags, with values, that decide which sites exist, from the command that made the plan.
	Flags map[string][]string `json:"flags,omitempty"`
	Sites []PlannedSite       `json:"sites"`
}

// PlannedSite is a site of a plan. ID locates it; the other fields describe it.
type PlannedSite struct {
	Apply bool `json:"apply"` // whether to replace it
	SiteReport
}

// PlanFile returns the plan in its file form. It lists all judged sites, and marks those that passed for replacement.
// The caller fills Flags, and the digest of the model.
func (p *Plan) PlanFile() *PlanFile {
	c := p.request
	f := &PlanFile{Schema: PlanSchema, Tool: c.Version, Model: p.Report.Input, Sites: []PlannedSite{}}
	if c.Patterns != nil {
		f.Patterns = c.Patterns.Digest()
	}
	for _, s := range p.Report.Sites {
		if s.ID != "" {
			f.Sites = append(f.Sites, PlannedSite{s.Status == Fused, s})
		}
	}
	return f
}

// Applied lists the ids of the sites to be replaced.
func (f *PlanFile) Applied() []string {
	var ids []string
	for _, s := range f.Sites {
		if s.Apply {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// With returns a copy of the plan in which only the sites of these ids are to be replaced.
func (f *PlanFile) With(ids ...string) *PlanFile {
	p := *f
	p.Sites = slices.Clone(f.Sites)
	for i := range p.Sites {
		p.Sites[i].Apply = slices.Contains(ids, p.Sites[i].ID)
	}
	return &p
}

// Fits returns an error if the plan was made for a file with another SHA-256, with other patterns or by another version
// of the tool.
func (f *PlanFile) Fits(sha256, patterns, tool string) error {
	switch {
	case f.Model.SHA256 != sha256:
		return fmt.Errorf("it was made for another file (%s, SHA-256 %s); this file has SHA-256 %s", f.Model.Path,
			f.Model.SHA256, sha256)
	case f.Tool != tool:
		return fmt.Errorf("it was made by version %s; this is version %s", f.Tool, tool)
	case f.Patterns != patterns:
		return errors.New("it was made with other patterns")
	}
	return nil
}

// WritePlan writes a plan atomically.
func WritePlan(path string, f *PlanFile) error {
	if err := atomicfile.WriteFile(path, f.Write); err != nil {
		return fmt.Errorf("cannot write the plan: %w", err)
	}
	return nil
}

// Write writes a plan as WritePlan does.
func (f *PlanFile) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(f)
}

// MaxPlan and MaxPlanValues limit the bytes and the values of a plan. A plan for a graph of 100,000 nodes takes 13 MB
// and 430,000 values. A decoder needs a hundred times the memory for 60 MB of empty objects.
const (
	MaxPlan       = 32 << 20
	MaxPlanValues = 2_000_000
)

// PlanText reads the text of a plan, or of a JSON file of similar size. It returns an error if the file is larger than
// any plan for a real model.
func PlanText(path string) ([]byte, error) {
	b, err := regular.ReadFile(path, MaxPlan)
	if err != nil {
		return nil, err
	}
	values := 0
	for _, mark := range []string{",", "{", "["} {
		values += bytes.Count(b, []byte(mark))
	}
	if values > MaxPlanValues {
		return nil, fmt.Errorf("%s has more than %d JSON values, several times as many as a plan for a graph of "+
			"100,000 nodes: write it again with match -o", path, MaxPlanValues)
	}
	return b, nil
}

// ReadPlan reads a plan. It returns an error for an unknown field, since a mistyped one would have no effect.
func ReadPlan(path string) (*PlanFile, error) {
	b, err := PlanText(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the plan: %w", err)
	}
	f, err := parsePlan(b)
	if err != nil {
		return nil, fmt.Errorf("%s is not a plan: %w", path, err)
	}
	return f, nil
}

func parsePlan(b []byte) (*PlanFile, error) {
	var version struct{ Schema int }
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, err
	}
	if version.Schema != PlanSchema {
		return nil, fmt.Errorf("its schema is %d; this version reads %d", version.Schema, PlanSchema)
	}
	f := &PlanFile{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, err
	}
	if f.Model == nil {
		return nil, errors.New("the field \"model\" is missing")
	}
	seen := map[string]bool{}
	for i, s := range f.Sites {
		if s.ID == "" {
			return nil, fmt.Errorf("site %d has no id", i)
		}
		if seen[s.ID] {
			return nil, fmt.Errorf("the site %q is listed twice", s.ID)
		}
		seen[s.ID] = true
	}
	return f, nil
}

// asPlanned returns an error unless the report's sites are those that the plan file requests.
func (p *Plan) asPlanned() error {
	var failures []error
	found := map[string]SiteReport{}
	for _, s := range p.Report.Sites {
		found[s.ID] = s
	}
	for _, want := range p.request.Plan.Sites {
		if !want.Apply {
			continue
		}
		switch got, ok := found[want.ID]; {
		case !ok:
			failures = append(failures, fmt.Errorf("%q is not a site of the model, or no selected kernel "+
				"supports it", want.ID))
		case got.Status != Fused:
			failures = append(failures, fmt.Errorf("%q is %s: %s", want.ID, got.Status, got.Reason))
		case len(want.Nodes) > 0 && !slices.Equal(got.Nodes, want.Nodes):
			failures = append(failures, fmt.Errorf("%q has other nodes now: %q instead of %q", want.ID, got.Nodes,
				want.Nodes))
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("the model cannot be patched as planned: %w", errors.Join(failures...))
	}
	return nil
}
