// Package foreign recognizes files that are not ONNX models, for messages that say what to do.
package foreign

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Describe describes the format of a file that is not an ONNX model and the remedy. It returns "" for unknown formats.
func Describe(b []byte) string {
	at := func(offset int, magic string) bool {
		return len(b) >= offset+len(magic) && string(b[offset:offset+len(magic)]) == magic
	}
	text := bytes.ToLower(bytes.TrimLeft(b[:min(len(b), 512)], "\xef\xbb\xbf \t\r\n"))
	switch {
	case at(0, "version https://git-lfs"):
		return "a Git LFS pointer, not the model: fetch the file itself (git lfs pull)"
	case at(0, "PK\x03\x04"), at(0, "\x80\x02"):
		return "a zip or pickle file, as PyTorch writes checkpoints: export the model with torch.onnx.export"
	case at(0, "GGUF"):
		return "a GGUF file, which has weights but no graph: export the model to ONNX, then use mojo-patch weights load"
	case isSafetensors(b):
		return "a safetensors file, which has weights but no graph: export the model to ONNX, then use " +
			"mojo-patch weights load"
	case at(4, "TFL3"):
		return "a TensorFlow Lite model: convert it with tf2onnx"
	case at(4, "ORTM"):
		return "a model in onnxruntime's format: use the .onnx file that it was made from"
	case at(0, "\x89HDF\r\n"):
		return "an HDF5 file, as Keras writes models: convert it with tf2onnx"
	case at(0, "\x1f\x8b"):
		return "a gzip file: unpack it first"
	case at(0, "\x93NUMPY"):
		return "a NumPy array"
	case bytes.HasPrefix(text, []byte("<!doctype html")), bytes.HasPrefix(text, []byte("<html")):
		return "an HTML page, probably the page of a download that failed: download the file itself"
	case bytes.HasPrefix(text, []byte("<?xml")):
		return "an XML file, as OpenVINO writes models: use the ONNX model that it was made from"
	}
	return ""
}

// ModelsIn names the models in a folder, to extend the error that the path is a folder. It returns "" for other paths.
func ModelsIn(path string) string {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return ""
	}
	models, _ := fs.Glob(os.DirFS(path), "*.onnx")
	below, _ := fs.Glob(os.DirFS(path), "*/*.onnx") // as on Hugging Face
	models = append(models, below...)
	const named = 4
	switch n := len(models); {
	case n == 0:
		return " without an .onnx file"
	case n > named:
		models = append(models[:named:named], fmt.Sprintf("%d more", n-named))
	}
	return ": name a model in it: " + strings.Join(models, ", ")
}

// isSafetensors reports whether b begins like a safetensors file: with the length of a JSON header and the header.
func isSafetensors(b []byte) bool {
	const longestHeader = 100 << 20 // the limit of the format's own library
	return len(b) >= 10 && binary.LittleEndian.Uint64(b) <= longestHeader && string(b[8:10]) == `{"`
}
