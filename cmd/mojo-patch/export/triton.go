package export

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/llm/serving"
	"github.com/spf13/cobra"
)

type exportTritonFlags struct {
	out        string
	kernelsLib string
	provider   string
	options    serving.TritonOptions
}

// Triton describes a model in a model repository.
type Triton struct {
	Schema     int    `json:"schema"`
	Repository string `json:"repository"`
	Name       string `json:"name"`
	*serving.TritonModel
}

func newExportTriton(a *cli.App) *cobra.Command {
	f := &exportTritonFlags{}
	c := &cobra.Command{
		Use:   "triton MODEL -o REPOSITORY",
		Short: "Write a model into a repository of NVIDIA's Triton Inference Server",
		Long: `triton writes REPOSITORY/NAME for Triton Inference Server's back end "onnxruntime": config.pbtxt, and
1/model.onnx with its weights and the library of the kernels. The repository is a new folder, or one
that has other models. Inputs and outputs keep their names.

Up to --max-batch-size requests run together if the first axis of all inputs and outputs is a batch of
any size.

For a decoder with --cache static=M --past-length=rows the server keeps the caches as states of each
sequence: a request has token ids and the id of its sequence, and returns logits. Requests of several
sequences run together if they have equal numbers of tokens. For any other decoder, past and present
are inputs and outputs of each request.

The server opens the library by its path in config.pbtxt: --server-path is the path of the repository
on the server, for example in its container.`,
		Example: `  mojo-patch apply model.onnx -o patched.onnx --for triton
  mojo-patch export triton patched.onnx -o repository --name smollm2 --server-path /models
  tritonserver --model-repository /models`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE:              func(_ *cobra.Command, args []string) error { return f.export(a, args[0]) },
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "repository to write the model into")
	fl.StringVar(&f.options.Name, "name", "", "name of the model (default: the name of its file)")
	fl.StringVar(&f.options.ServerPath, "server-path", "",
		"path of the repository on the server (default: its path here)")
	fl.IntVar(&f.options.MaxBatchSize, "max-batch-size", 8, "most requests that run together; 0: one by one")
	fl.IntVar(&f.options.QueueDelay, "queue-delay", 100, "microseconds that a request waits for other requests")
	fl.StringVar(&f.provider, "provider", "cpu", "provider that the server runs the model on: cpu or cuda")
	fl.StringVar(&f.kernelsLib, "kernels-lib", "",
		"the kernel library or its folder (default: $MOJO_OPS_LIBRARY, beside the program, or where pip installed it)")
	cli.CompleteFile(c, "kernels-lib", session.LibraryExtensions...)
	cli.CompleteValues(c, "provider", exportProviders, false)
	a.JSONFlag(c, "export-triton")
	return c
}

func (f *exportTritonFlags) export(a *cli.App, path string) error {
	device, err := exportDevice(f.provider)
	o := &f.options
	switch {
	case err != nil:
		return err
	case f.out == "":
		return errors.New("-o REPOSITORY is missing")
	case o.MaxBatchSize < 0 || o.QueueDelay < 0:
		return errors.New("--max-batch-size and --queue-delay must be 0 or more")
	}
	if o.Name == "" {
		o.Name = strings.TrimSuffix(filepath.Base(path), ".onnx")
	}
	if err := serving.CheckTritonName(o.Name); err != nil {
		return fmt.Errorf("--name: %w", err)
	}
	if o.ServerPath == "" {
		if o.ServerPath, err = filepath.Abs(f.out); err != nil {
			return err
		}
	}
	o.GPU = device == fused.CUDA
	_, missing := os.Stat(f.out)
	folder := filepath.Join(f.out, o.Name)
	if missing == nil {
		err = cli.NewFolder(folder)
	} else {
		err = cli.NewFolder(f.out)
	}
	if err != nil {
		return err
	}
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if o.Library, err = libraryFor(m, device, f.kernelsLib); err != nil {
		return err
	}
	var made *serving.TritonModel
	write := func(folder string) (err error) {
		made, err = serving.WriteTriton(folder, m, *o)
		return err
	}
	if missing == nil {
		err = atomicfile.WriteFolder(folder, write)
	} else {
		err = atomicfile.WriteFolder(f.out, func(repository string) error {
			folder := filepath.Join(repository, o.Name)
			if err := os.Mkdir(folder, 0o755); err != nil {
				return err
			}
			return write(folder)
		})
	}
	if err != nil {
		return err
	}
	f.report(a, path, made)
	return a.Result(&Triton{Schema: cli.JSONSchema, Repository: f.out, Name: o.Name, TritonModel: made})
}

func (f *exportTritonFlags) report(a *cli.App, path string, made *serving.TritonModel) {
	if made.FusedOps == 0 {
		a.Say("no fused ops: %s is exported without change; to patch it first, use mojo-patch apply", path)
	}
	switch {
	case made.OneByOne != "":
		a.Say("requests  one by one: %s", made.OneByOne)
	case made.MaxBatchSize == 0:
		a.Say("requests  one by one")
	default:
		a.Say("requests  up to %d together", made.MaxBatchSize)
	}
	if len(made.States) > 0 {
		a.Say("sequences the server keeps %s", cli.Counted(len(made.States), "state"))
	}
	a.Say("wrote %s: %s, %s", filepath.Join(f.out, f.options.Name), cli.Counted(made.FusedOps, "fused op"),
		strings.Join(made.Files, ", "))
}
