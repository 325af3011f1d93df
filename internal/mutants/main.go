// Command mutants changes the code in small ways, one at a time, and counts which changes the tests notice:
//
//	go run ./internal/mutants
//
// It draws mutants of the packages that decide which blocks are fused (patterns, rewrite, fused, reference/infer,
// golden) and runs the short tests in these folders that reach the changed place: the package's own and those of the
// packages beside and above it. Coverage, measured once, tells which places a test reaches. A mutant that no test
// notices is a survivor; harmless.txt lists survivors that change nothing, with the reason. The exit status is 1 if
// there are others.
//
// Its files are in build/mutants: report.md lists the survivors, and an interrupted run continues from results.jsonl. A
// mutant is tried again if its file has changed, a survivor if a file in its folder has. With -own, only the tests in
// the mutant's folder run, and the results are in own.jsonl.
package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/mojo-patch/mojo-patch/"

// group is a folder of the module with the packages below it whose tests `make quick` runs.
type group struct {
	name    string
	folders []string
}

// left lists packages of the groups that are mutated only with -own: their tests take too long for `make quick`.
var left = []string{"rewrite/convert"}

//go:embed harmless.txt
var harmless string

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutants: ")
	count := flag.Int("n", 200, "how many mutants")
	seed := flag.Int64("seed", 1, "which mutants")
	out := flag.String("out", filepath.Join("build", "mutants"), "folder to write to")
	packages := flag.String("packages", "", "draw -n mutants from each of these folders, with commas between them")
	only := flag.String("only", "", "try only these mutants, by their ids with commas between them")
	own := flag.Bool("own", false, "run only the tests in the folder of the mutated package")
	kernels := flag.Bool("kernels", false, "plant the faults of faults.go in the kernels instead")
	flag.Parse()
	folder, err := filepath.Abs(*out)
	if err == nil {
		err = os.MkdirAll(folder, 0o777)
	}
	switch {
	case err != nil:
	case *kernels:
		err = kernelTests(folder)
	default:
		r := &runner{out: folder, own: *own, tests: map[string][]test{}}
		err = goTests(r, *count, *seed, *packages, *only)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// goTests tries the mutants of the Go code.
func goTests(r *runner, count int, seed int64, packages, only string) error {
	groups, err := findGroups(r.own)
	if err != nil {
		return err
	}
	all, err := everyMutant(groups, seed)
	if err != nil {
		return err
	}
	log.Printf("%d mutants to draw from", len(all))
	if only != "" {
		all = slices.DeleteFunc(all, func(m mutant) bool { return !slices.Contains(strings.Split(only, ","), m.ID) })
	}
	draws, err := drawsOf(all, packages)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if !slices.ContainsFunc(slices.Concat(draws...), g.has) {
			continue
		}
		for _, folder := range g.folders {
			within := func(m mutant) bool { return path.Dir(m.File) == folder }
			if r.own && !slices.ContainsFunc(slices.Concat(draws...), within) {
				continue
			}
			tests, err := r.profiles(g, folder)
			if err != nil {
				return err
			}
			r.tests[g.name] = append(r.tests[g.name], tests...)
		}
	}
	var results []result
	for _, draw := range draws {
		found, err := r.sample(draw, groups, count)
		if err != nil {
			return err
		}
		results = append(results, found...)
	}
	return report(results, filepath.Join(r.out, "report.md"))
}

// drawsOf returns the lists of mutants to draw from: one for each package, or a list of all if packages is empty.
func drawsOf(all []mutant, packages string) (draws [][]mutant, err error) {
	if packages == "" {
		return [][]mutant{all}, nil
	}
	for folder := range strings.SplitSeq(packages, ",") {
		draw := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return path.Dir(m.File) != folder })
		if len(draw) == 0 {
			return nil, fmt.Errorf("no mutants in %q: name the folder of a package, such as rewrite/edit", folder)
		}
		draws = append(draws, draw)
	}
	return draws, nil
}

// everyMutant returns the mutants of all groups in the order of drawing.
func everyMutant(groups []group, seed int64) ([]mutant, error) {
	var all []mutant
	for _, g := range groups {
		for _, folder := range g.folders {
			found, err := mutants(folder, seed)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	slices.SortFunc(all, func(a, b mutant) int { return cmp.Compare(a.order, b.order) })
	return all, nil
}

// findGroups returns the groups with their packages, if all is set also those that are left out of `make quick`.
func findGroups(all bool) ([]group, error) {
	var groups []group
	for _, name := range []string{"patterns", "rewrite", "fused", "reference/infer", "golden"} {
		g := group{name: name}
		paths, err := output(".", "go", "list", "./"+name+"/...")
		if err != nil {
			return nil, err
		}
		for line := range strings.FieldsSeq(paths) {
			folder := strings.TrimPrefix(line, module)
			if all || !slices.Contains(left, folder) {
				g.folders = append(g.folders, folder)
			}
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// sample tries the first count mutants that compile.
func (r *runner) sample(all []mutant, groups []group, count int) ([]result, error) {
	kept := filepath.Join(r.out, "results.jsonl")
	if r.own {
		kept = filepath.Join(r.out, "own.jsonl")
	}
	known, err := readResults(kept)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(kept, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var results []result
	for _, m := range all {
		if len(results) == count {
			break
		}
		g := groups[slices.IndexFunc(groups, func(g group) bool { return g.has(m) })]
		own, err := hash(m.File)
		if err != nil {
			return nil, err
		}
		whole, err := g.hash()
		if err != nil {
			return nil, err
		}
		got, ok := known[m.ID]
		if !ok || got.State != own && got.State != whole {
			if got, err = r.try(m, r.reach(g, m, own)); err != nil {
				return nil, err
			}
			if got.State = own; got.lives() {
				got.State = whole
			}
			if err := json.NewEncoder(file).Encode(got); err != nil {
				return nil, err
			}
		}
		if got.Mutant = m; got.Reason == noMutant {
			continue
		}
		results = append(results, got)
		log.Printf("%3d %s %s", len(results), m, cmp.Or(got.By, "LIVES "+got.Reason))
	}
	return results, nil
}

// reach returns the tests that may run a mutant, whose file has this hash: all tests if the file is new. If r.own is
// set, it leaves out the tests of other packages.
func (r *runner) reach(g group, m mutant, hash string) []test {
	known := slices.ContainsFunc(r.tests[g.name], func(t test) bool { return t.profile.Files[m.File].Hash != "" })
	return slices.DeleteFunc(slices.Clone(r.tests[g.name]), func(t test) bool {
		return r.own && t.pkg != path.Dir(m.File) || known && !t.profile.runs(m, hash)
	})
}

func (m mutant) String() string {
	return fmt.Sprintf("%s %s:%d: %s: %q for %q", m.ID, m.File, m.Line, m.Kind, m.New, m.Old)
}

// has reports whether a mutant is in a package of the group.
func (g group) has(m mutant) bool { return strings.HasPrefix(m.File, g.name+"/") }

// hash returns the hash of all Go files of the group.
func (g group) hash() (string, error) {
	var paths []string
	for _, folder := range g.folders {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return "", err
		}
		paths = append(paths, found...)
	}
	return hash(paths...)
}

func readResults(path string) (map[string]result, error) {
	known := map[string]result{}
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return known, nil
	} else if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			break // the partial line of an interrupted run
		}
		known[r.Mutant.ID] = r
	}
	return known, nil
}

// harmlessReasons returns the reasons of the survivors that are known to change nothing.
func harmlessReasons() map[string]string {
	reasons := map[string]string{}
	scanner := bufio.NewScanner(strings.NewReader(harmless))
	for scanner.Scan() {
		if id, reason, ok := strings.Cut(scanner.Text(), " "); ok && !strings.HasPrefix(id, "#") {
			reasons[id] = strings.TrimSpace(reason)
		}
	}
	return reasons
}
