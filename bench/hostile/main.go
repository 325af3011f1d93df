// Command hostile measures the CPU seconds and the memory that commands take for graphs that are hard to search.
//
//	go run ./bench/hostile [-tool build/mojo-patch] [-sizes 1000,100000] [-commands match] [-run REGEXP] [-keep DIR]
//
// A command that takes longer or needs more memory than -seconds and -memory allow is stopped, and the exit code is 1.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/hostile"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func main() {
	b := &bench{}
	flag.StringVar(&b.tool, "tool", "build/mojo-patch", "the `file` of mojo-patch")
	sizes := flag.String("sizes", "1000:2,100000:10",
		"`numbers` of nodes, each with the seconds that a command may take")
	commands := flag.String("commands", "match,apply,why", "the `commands` to run: match, apply, why, …")
	run := flag.String("run", "", "measure the shapes whose name matches this `expression` only")
	flag.StringVar(&b.dir, "keep", "", "write the graphs to this `folder` and keep them")
	flag.Int64Var(&b.memory, "memory", 1000, "`megabytes` that a command may take")
	flag.Float64Var(&b.stop, "stop", 60, "`seconds` after which a command is stopped")
	flag.IntVar(&b.jobs, "j", 1, "`number` of commands to run at a time")
	flag.StringVar(&b.args, "args", "", "`arguments` of every command besides")
	flag.Parse()
	ok, err := b.run(*sizes, strings.Split(*commands, ","), regexp.MustCompile(*run))
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

type bench struct {
	tool, dir string
	memory    int64
	stop      float64
	jobs      int
	args      string
}

func (b *bench) run(sizes string, commands []string, names *regexp.Regexp) (ok bool, err error) {
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "hostile"); err != nil {
			return false, err
		}
		defer os.RemoveAll(b.dir)
	}
	type row struct {
		shape   hostile.Shape
		nodes   int
		limit   float64
		command string
		text    chan string
	}
	var rows []row
	for _, s := range hostile.Shapes() {
		if !names.MatchString(s.Name) {
			continue
		}
		for size := range strings.SplitSeq(sizes, ",") {
			r := row{shape: s}
			if n, err := fmt.Sscanf(size, "%d:%g", &r.nodes, &r.limit); n != 2 {
				return false, fmt.Errorf("-sizes %s: %w", size, err)
			}
			for _, r.command = range commands {
				r.text = make(chan string, 1)
				rows = append(rows, r)
			}
		}
	}
	ok = true
	running := make(chan bool, b.jobs)
	go func() {
		for i, r := range rows {
			running <- true
			go func() {
				defer func() { <-running }()
				dir := filepath.Join(b.dir, strconv.Itoa(i))
				os.Mkdir(dir, 0o777)
				defer os.RemoveAll(dir)
				path := filepath.Join(dir, r.shape.Name+".onnx")
				err := onnx.Write(path, r.shape.Model(r.nodes))
				seconds, megabytes, note := b.measure(r.command, path)
				switch {
				case err != nil:
					note = err.Error()
				case note != "":
				case seconds > r.limit:
					note = "**too long**"
				case megabytes > b.memory:
					note = "**too much**"
				}
				r.text <- fmt.Sprintf("| %s | %d | %s | %.2f | %d | %s |", r.shape.Name, r.nodes, r.command, seconds,
					megabytes, note)
			}()
		}
	}()
	fmt.Println("| shape | nodes | command | CPU s | MB | |\n| --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		text := <-r.text
		fmt.Println(text)
		ok = ok && strings.HasSuffix(text, "|  |")
	}
	return ok, nil
}

// measure runs one command on a model.
func (b *bench) measure(command, path string) (seconds float64, megabytes int64, note string) {
	out := filepath.Join(filepath.Dir(path), "out")
	args := map[string][]string{
		"match":   {"match", path, "-q"},
		"apply":   {"apply", path, "-q", "-o", out + ".onnx"},
		"why":     {"inspect", path, "--why"},
		"inspect": {"inspect", path},
		"learn":   {"apply", path, "-q", "-o", out + ".onnx", "--learn", out + ".pat"},
		"html":    {"apply", path, "-q", "-o", out + ".onnx", "--html", out + ".html"},
		"all":     {"match", path, "-q", "--verify", "all"},
		"json":    {"match", path, "--json"},
		"audit":   {"audit", path},
		"layers":  {"diff", path, path, "--layers"},
	}[command]
	args = append(args, strings.Fields(b.args)...)
	var stderr strings.Builder
	c := exec.Command("prlimit", append([]string{fmt.Sprintf("--cpu=%.0f", b.stop), b.tool}, args...)...)
	c.Stderr = &stderr
	err := c.Run()
	state := c.ProcessState
	seconds = state.UserTime().Seconds() + state.SystemTime().Seconds()
	megabytes = maxRSS(state) >> 20
	if text := stderr.String(); err != nil && !(state.ExitCode() == 3 || strings.Contains(text, "nothing")) {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		note = "**" + err.Error() + "** " + lines[len(lines)-1]
	}
	return seconds, megabytes, note
}
