# mojo-patch: `make help` lists the targets. Everything made here lands in build/, which git ignores.
# This file builds what users run. tools/*.mk hold Python environments, CUDA, CANN, checks, tests and benchmarks.
SHELL := /bin/sh
GO ?= go
PYTHON ?= python3
JOBS ?= 2
# TAGS=crosscheck links the second ONNX reader of apply --crosscheck. The license of one of its modules forbids direct
# profit (THIRD_PARTY.md), and the modules take a quarter of the time to build. The tests link them anyway.
TAGS ?=

BUILD := build
BIN := $(BUILD)/mojo-patch
SO := $(if $(filter Darwin,$(shell uname -s)),dylib,so)
LIBRARY := $(BUILD)/libmojo_ops.$(SO)
KERNELS := $(BUILD)/kernels/libmojo_ops.$(SO)
# A first look at a fresh clone compiles the ops of the demo's model, in float32, for this machine only.
DEMO_LIBRARY := $(BUILD)/kernels/here/libmojo_ops.$(SO)
# The version that the wheel has, too: CHANGELOG.md's. Without Python, the commit.
VERSION := $(shell $(PYTHON) python/backend.py --version 2>/dev/null || \
	git describe --always --dirty 2>/dev/null || echo dev)
# The program and the tests are compiled with the same flags, so that what both need is compiled once. Tables for
# debuggers take a tenth of the time to compile; -gcflags=all=-dwarf=true in GOFLAGS writes them.
COMPILED := -trimpath -gcflags=all=-dwarf=false
export GOFLAGS := $(COMPILED) $(filter-out $(COMPILED),$(shell $(GO) env GOFLAGS 2>/dev/null))
# Go's compiler collects no garbage below 400 MiB, which takes a tenth of its time. runtime, the largest package, then
# takes 420 MB.
GO_BUILD = GOGC=off GOMEMLIMIT=400MiB $(GO) build
# If ccache is installed, the C++ and CUDA compilers' results are kept; CCACHE= turns that off. Paths are relative to
# the clone, so that clones share results.
CCACHE := $(shell command -v ccache 2>/dev/null)
ifneq ($(CCACHE),)
export CMAKE_C_COMPILER_LAUNCHER ?= $(CCACHE)
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(CCACHE)
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
# A new clone has its own nvcc, which is newer but the same.
export CCACHE_COMPILERCHECK ?= content
endif
GO_FILES := go.mod go.sum $(shell find cmd fused golden internal llm onnx ort patterns reference rewrite \
	-not -path '*/testdata/*' \( -name '*.go' -o -name '*.pat' -o -name '*.c' -o -name '*.h' -o -name '*.txt' \))
KERNEL_FILES := $(shell find fused -name '*.cc' -o -name '*.h' -o -name CMakeLists.txt | \
	grep -vE '/((tests|cuda|ascend)/|_test\.cc$$)')

.DEFAULT_GOAL := all
.PHONY: FORCE all help cuda cann wheel fetch demo op smollm2 check quick test bench zoo docs clean distclean
include $(addprefix tools/, python.mk cuda.mk cann.mk check.mk test.mk bench.mk release.mk)

all: $(BIN) $(LIBRARY) ## build build/mojo-patch and build/libmojo_ops.so (the default)

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):[^#]*## */\1\t/' | \
		awk -F '\t' '{ printf "  make %-18s %s\n", $$1, $$2 }'

cuda: $(CUDA_LIBRARY) ## build/libmojo_ops_cuda.so: the CUDA kernels, and the CPU's; needs neither GPU nor driver
cann: $(CANN_LIBRARY) ## build/libmojo_ops_cann.so: the kernels for the CANN provider, and the CPU's; needs no CANN
wheel: $(WHEEL_DONE) ## build/wheel: the program, the kernels and a module to use them, as a Python package
fetch: $(FETCHED) ## fetch onnxruntime into the user's cache folder

demo: $(BIN) $(or $(wildcard $(LIBRARY)),$(DEMO_LIBRARY)) ## patch a bundled model, compare with PyTorch's outputs
	@MOJO_OPS_LIBRARY="$(abspath $(lastword $^))" tools/demo.sh

$(DEMO_LIBRARY): $(KERNEL_FILES) | $(CMAKE_STAMP) $(if $(filter demo,$(MAKECMDGOALS)),,$(KERNELS))
	@echo "building the kernels of this machine"
	@mkdir -p $(BUILD)
	@$(call logged,kernels-here,"$(CMAKE)" -S fused/kernels -B $(BUILD)/kernels)
	@$(call logged,kernels-here,"$(CMAKE)" --build $(BUILD)/kernels --target mojo_ops_here --parallel $(JOBS))
	@touch $@

op: ## NAME=Swish: write the folder of a new op, which multiplies by a factor until you change it
	@if [ -z "$(NAME)" ]; then echo "usage: make op NAME=Swish" >&2; exit 2; fi
	$(GO) run ./fused/internal/newop . $(NAME)
	$(GO) run ./fused/internal/generate .

smollm2: all $(FETCHED) ## patch SmolLM2-135M-Instruct (98 MB fetched), generate, compare with PyTorch's tokens
	@ONNXRUNTIME_LIB="$$(cat $(FETCHED))" PYTHON="$(PYTHON)" tools/smollm2.sh $(SMOLLM2)

check: $(CHECKS) ## formatting, vet and linters of Go, C++ and Python, here and for other systems

quick: check test-quick ## check, and the Go tests that take little time: under two minutes when everything is cached
test: ## everything: the checks, all tests, the kernels under the sanitizers
	@$(MAKE) --no-print-directory -j3 $(TEST_NEEDS)
	@$(MAKE) --no-print-directory -j3 $(filter --%,$(.FEATURES:output-sync=--output-sync=target)) \
		STEPS=1 test-ray test-steps
	@echo "all tests passed"

bench: ## time the kernels against what they replace, and apply on large graphs
	@$(MAKE) --no-print-directory $(BENCHES)
zoo: all $(FETCHED) ## ZOO=DIR: patch every model of DIR or DIR/models with goldens (and truth.json), and count
	@if [ -z "$(ZOO)" ]; then echo "usage: make zoo ZOO=DIR" >&2; exit 2; fi
	$(TEST_ENV) $(GO) run ./bench/zoo "$(abspath $(ZOO))"

docs: $(BIN) ## write the generated documents again: docs/ops.md, docs/cli.md, docs/schemas, docs/targets/matrix.md
	$(GO) run ./fused/internal/generate .
	$(GO) test ./cmd/mojo-patch -run TestSchemas -args -write-schemas
	$(BIN) docs >$(BUILD)/cli.md && mv $(BUILD)/cli.md docs/cli.md
	$(GO) run ./bench/targets models >$(BUILD)/matrix.md && mv $(BUILD)/matrix.md docs/targets/matrix.md

clean: ## remove what was built; the Python environments stay
	rm -rf $(BIN) $(LIBRARY) $(CUDA_LIBRARY) $(CANN_LIBRARY) $(BUILD)/kernels $(BUILD)/arm64 $(BUILD)/cuda $(WHEEL) \
		$(BUILD)/release $(NODE_TESTS) $(FETCHED) $(BUILD)/patched $(BUILD)/patched-npu $(BUILD)/demo \
		$(BUILD)/examples $(BUILD)/ray $(BUILD)/test-fetch $(BUILD)/check $(BUILD)/*.log $(BUILD)/*.md

distclean: ## remove build/ with everything in it
	rm -rf $(BUILD)

$(BIN): $(GO_FILES) $(if $(TAGS),FORCE)
	@mkdir -p $(BUILD)
	$(GO_BUILD) -tags "$(TAGS)" -ldflags "-w -X main.version=$(VERSION)" -o $@ ./cmd/mojo-patch

$(LIBRARY): $(KERNELS)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(KERNELS): $(KERNEL_FILES) | $(CMAKE_STAMP)
	@echo "building the kernels"
	@mkdir -p $(BUILD)
	@$(call logged,kernels,"$(CMAKE)" -S fused/kernels -B $(BUILD)/kernels)
	@$(call logged,kernels,"$(CMAKE)" --build $(BUILD)/kernels --parallel $(JOBS))
	@touch $@
