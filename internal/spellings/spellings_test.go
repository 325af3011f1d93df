package spellings

import (
	"flag"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
)

var (
	count = flag.Int("spellings", 40, "spellings and changes of meaning of each kind; make spellings tries 300")
	seed  = flag.Int64("seed", -1,
		"print the spelling, the change and the edit of this seed, of the kind that -run names")
)

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(1600) // many small models: else a third of the time is GC
	os.Exit(m.Run())
}

// TestKinds patches spellings of every kind: all must be found and fused, no changed one may be, and all patched models
// must return the results of the unpatched ones. A failure names its seed: go test -run 'TestKinds/KIND$' -seed N
// prints the models.
func TestKinds(t *testing.T) {
	n := *count
	if testing.Short() {
		n = min(n, 20)
	}
	for _, k := range Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			if *seed >= 0 {
				show(t, k, uint64(*seed))
				return
			}
			n := n
			if k.routes() { // large models; `make spellings` tries more
				n = min(n, 12)
			}
			r := Measure(k, 0, n)
			t.Logf("%s %d of %d; %d of %d changes of meaning fused; %d of %d other edits are a block still; %d "+
				"patched models give other results",
				k.Name, r.Fused, r.Spellings, r.FusedChanges, r.Changes, r.StillBlocks, r.Edits, r.Wrong)
			for i, f := range r.Failures {
				if i == 3 {
					t.Errorf("and %d other failures", len(r.Failures)-i)
					break
				}
				t.Error(f)
			}
		})
	}
}

// TestOneExpert changes the meaning at one expert of several; such models once were fused: the first two show it only
// with more than two tokens for that expert, the last without any.
func TestOneExpert(t *testing.T) {
	for _, x := range []struct {
		kind string
		seed uint64
	}{{"experts, one by one", 84}, {"experts, one by one", 261}, {"experts, in branches", 1264}} {
		at := slices.IndexFunc(Kinds(), func(k Kind) bool { return k.Name == x.kind })
		if r := Measure(Kinds()[at], x.seed, 1); r.Changes+r.Edits < 1 || r.FusedChanges+r.Wrong > 0 {
			t.Errorf("%s, seed %d: %d changes of meaning: %v", x.kind, x.seed, r.Changes, r.Failures)
		}
	}
}

// TestComposed patches spellings composed of identities. All must be fused, except routers, which are found by their
// form; no change of meaning may be, and fused models must return the same results.
func TestComposed(t *testing.T) {
	for _, k := range Composed() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			if *seed >= 0 {
				show(t, k, uint64(*seed))
				return
			}
			r := Measure(k, 0, min(*count, 12))
			t.Logf("%s %d of %d; %d changes of meaning", k.Name, r.Fused, r.Spellings, r.Changes)
			if r.Fused < r.Spellings && k.Pattern != "TopKRouter" {
				t.Errorf("%d of %d fused: %v", r.Fused, r.Spellings, r.Failures)
			}
			if r.Changes == 0 || r.FusedChanges+r.Wrong > 0 {
				t.Errorf("%d of %d changes of meaning fused; %d patched models give other results: %v", r.FusedChanges,
					r.Changes, r.Wrong, r.Failures)
			}
		})
	}
}

func show(t *testing.T, k Kind, seed uint64) {
	s := Spell(k, seed)
	t.Logf("%s\n%s", s, s.Text())
	if c, _, err := Change(k, seed); err == nil && c != nil {
		t.Logf("%s\n%s", c, c.Text())
	}
	if e, err := Edit(k, seed); err == nil {
		t.Logf("%s\n%s", e, e.Text())
	}
}

// TestPatternsExist demands that every kind names an existing pattern.
func TestPatternsExist(t *testing.T) {
	for _, k := range Kinds() {
		if !slices.ContainsFunc(patterns.Builtin().Patterns, func(p *patterns.Pattern) bool {
			return p.Name == k.Pattern
		}) {
			t.Errorf("%s: there is no pattern %s", k.Name, k.Pattern)
		}
	}
}

// TestSeedsAndEdits demands that a kind and a seed determine the model, and that the writers know more than twenty
// edits.
func TestSeedsAndEdits(t *testing.T) {
	edits := map[string]bool{}
	for _, k := range Kinds() {
		texts := map[string]bool{}
		for seed := range uint64(20) {
			s, offered := spell(k, seed, "")
			if again := Spell(k, seed); again.Text() != s.Text() {
				t.Errorf("%s is not the same twice", s)
			}
			texts[s.Text()] = true
			for _, e := range offered {
				edits[e] = true
			}
		}
		if len(texts) < 20 {
			t.Errorf("%s: 20 seeds give %d models", k.Name, len(texts))
		}
	}
	if len(edits) < 20 {
		t.Errorf("only %d edits change a meaning", len(edits))
	}
	t.Logf("%d named edits", len(edits))
}

// TestMeasureNotices demands that the measure detects a changed model instead of the spelling, or another model instead
// of the patched one.
func TestMeasureNotices(t *testing.T) {
	k := Kinds()[0]
	changed, unchanged, err := Change(k, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := Same(k, unchanged.Model, changed.Model); err == nil {
		t.Errorf("%s: no difference is noticed", changed)
	}
	var r Rate
	r.spelling(changed, changed)
	if r.Fused != 0 || len(r.Failures) != 1 || !strings.Contains(r.Failures[0].String(), changed.Change) {
		t.Errorf("a changed spelling passes: %+v", r)
	}
}

// TestModelsAreFiles demands that spelled models are valid: files of them can be written and read.
func TestModelsAreFiles(t *testing.T) {
	for _, k := range Kinds() {
		s := Spell(k, 3)
		file := t.TempDir() + "/spelling.onnx"
		if err := onnx.Write(file, s.Model); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		m, err := onnx.Read(file)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if err := Same(k, Spell(k, 3).Model, m); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		m.Close()
	}
}
