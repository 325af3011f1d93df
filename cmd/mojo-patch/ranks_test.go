package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// rankLimit is the most time that the ranks of a command may take: a rank that waits forever fails the test.
const rankLimit = 2 * time.Minute

// runRanks starts a program once for each rank, as torchrun does, and requires the exit code of each: ranks N CODE
// PROGRAM [ARGUMENT …]. CODE is "1,2" if the first rank has another code than the rest. stdout and stderr then hold the
// output of rank 0. After success the other ranks must have printed nothing; after a failure each must have named
// itself.
func runRanks(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: ranks N CODE PROGRAM [ARGUMENT ...]")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the system chooses a port, which is free again right after
	ts.Check(err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	ts.Check(err)
	ts.Check(listener.Close())
	launched := map[string]string{"WORLD_SIZE": args[0], "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
	for name, value := range launched {
		ts.Setenv(name, value)
		defer ts.Setenv(name, "")
	}
	defer ts.Setenv("RANK", "")
	ctx, cancel := context.WithTimeout(context.Background(), rankLimit)
	defer cancel()
	program, err := exec.LookPath(args[2])
	ts.Check(err)
	first, rest, ok := strings.Cut(args[1], ",")
	if !ok {
		rest = first
	}
	others := make([]*exec.Cmd, n)
	printed := make([]bytes.Buffer, n)
	for rank := 1; rank < n; rank++ {
		ts.Setenv("RANK", strconv.Itoa(rank))
		c := exec.CommandContext(ctx, program, args[3:]...)
		c.Dir, c.Stdout, c.Stderr = ts.MkAbs("."), &printed[rank], &printed[rank]
		c.Env = os.Environ()
		for _, name := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MODELS", "ONNXRUNTIME_LIB",
			"MOJO_OPS_LIBRARY", "MOJO_COLLECTIVE_TIMEOUT", schemasVariable, metVariable} {
			c.Env = append(c.Env, name+"="+ts.Getenv(name))
		}
		ts.Check(c.Start())
		others[rank] = c
	}
	ts.Setenv("RANK", "0")
	status(ts, false, append([]string{first}, args[2:]...))
	for rank := 1; rank < n; rank++ {
		others[rank].Wait() // its exit code is compared
		text := printed[rank].Bytes()
		code := strconv.Itoa(others[rank].ProcessState.ExitCode())
		named := bytes.Contains(text, []byte("mojo-patch: rank "+strconv.Itoa(rank)+" of "+args[0]+": "))
		if code != rest || rest == "0" && len(text) > 0 || rest != "0" && !named {
			ts.Fatalf("rank %d of %d has exit code %s, want %s, and printed:\n%s", rank, n, code, rest, text)
		}
	}
}
