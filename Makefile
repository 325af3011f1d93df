# mojo-patch: `make help` lists the targets. Everything made here lands in build/, which git ignores.
SHELL := /bin/sh
GO ?= go
PYTHON ?= python3

BUILD := build
VENV := $(BUILD)/venv
BIN := $(BUILD)/mojo-patch
SO := $(if $(filter Darwin,$(shell uname -s)),dylib,so)
KERNELS := $(BUILD)/kernels/libmojo_ops.$(SO)
LIBRARY := $(BUILD)/libmojo_ops.$(SO)
NODE_TESTS := $(BUILD)/onnx-node-tests
WHEEL := $(BUILD)/wheel
FETCHED := $(BUILD)/.onnxruntime

# The program and the tests are compiled with the same flags, so that what both need is compiled once.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS 2>/dev/null)) -trimpath)

# What apply --crosscheck links. A program for others is built with TAGS= (THIRD_PARTY.md says why).
TAGS ?= crosscheck
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
WHEEL_DONE := $(WHEEL)/.done-$(VERSION)
GO_FILES := go.mod go.sum $(shell find cmd fused golden internal llm onnx ort patterns reference rewrite \
	-not -path '*/testdata/*' \( -name '*.go' -o -name '*.pat' -o -name '*.c' -o -name '*.h' -o -name '*.txt' \) 2>/dev/null)
# The CUDA kernels: nvcc is the one of the path, or of /usr/local/cuda, or else the one that pip installs into build/nvcc.
CUDA_LIBRARY := $(BUILD)/libmojo_ops_cuda.so
CUDA_ARCHS ?= 80 90a 100
JOBS ?= 2
NVCC_WHEELS := $(abspath $(BUILD))/nvcc
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc),$(NVCC_WHEELS)/nvidia/cu13/bin/nvcc)
NVCC_STAMP := $(if $(findstring $(NVCC_WHEELS),$(NVCC)),$(NVCC_WHEELS)/.installed)
CUDA_HOME = $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_MAKE = $(MAKE) --no-print-directory -j$(JOBS) -C fused/kernels/cuda NVCC="$(NVCC)" PYTHON="$(PYTHON)" ARCHS="$(CUDA_ARCHS)" \
	OUT="$(abspath $(BUILD))/cuda"
KERNEL_FILES := $(shell find fused/kernels -name '*.cc' -o -name '*.h' -o -name CMakeLists.txt 2>/dev/null | grep -vE '/(tests|cuda|ascend)/')
# The kernels for onnxruntime's CANN provider, which open CANN's libraries when they are made.
CANN_LIBRARY := $(BUILD)/libmojo_ops_cann.so

# The emulation of CANN and the stock onnxruntime for it, which has a Python environment of its own.
CANN_VENV := $(BUILD)/cann-venv
CANN_TESTS := cann_operator_test.py cann_refusal_test.py cann_device_test.py cann_emulation_test.py

# Qualcomm's emulator and OpenVINO; `make TARGETS_VENV=DIR` takes another Python environment.
TARGETS_VENV := $(BUILD)/targets-venv

# What make bench-smollm2 times mojo-patch against.
PEERS_VENV := $(BUILD)/peers-venv
SMOLLM2 := $(BUILD)/smollm2

# The cmake of the system, or else the one that pip installs into build/venv.
CMAKE := $(shell command -v cmake 2>/dev/null || echo $(CURDIR)/$(VENV)/bin/cmake)
CMAKE_STAMP := $(if $(findstring $(VENV),$(CMAKE)),$(VENV)/.cmake)

# What the tests run with: the onnxruntime that `make fetch` put into the user's cache folder, and the kernels built here.
TEST_ENV = MOJO_REQUIRE_ORT=1 ONNXRUNTIME_LIB="$$(cat $(FETCHED))" MOJO_OPS_LIBRARY="$(CURDIR)/$(LIBRARY)" \
	MOJO_ONNX_NODE_TESTS="$(CURDIR)/$(NODE_TESTS)" MOJO_PYTHON="$(CURDIR)/$(VENV)/bin/python" PATH="$(dir $(CMAKE)):$$PATH"

.PHONY: FORCE all help cann cuda cuda-programs test-cuda test-cann test-targets gpu-test gpu-zoo demo wheel test check test-wheel test-examples test-fetch test-go test-kernels test-arm64 test-docs test-zoo bench weights zoo spellings fuzz reliability fetch docs smollm2 bench-smollm2 clean distclean

all: $(BIN) $(LIBRARY) ## build build/mojo-patch and build/libmojo_ops.so (the default)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | \
		awk -F '\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

$(BIN): $(GO_FILES)
	@mkdir -p $(BUILD)
	$(GO) build -trimpath -tags "$(TAGS)" -ldflags "-X main.version=$(VERSION)" -o $@ ./cmd/mojo-patch

$(LIBRARY): $(KERNELS)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(KERNELS): $(KERNEL_FILES) | $(CMAKE_STAMP)
	@echo "building the kernels"
	@mkdir -p $(BUILD)
	@"$(CMAKE)" -S fused/kernels -B $(BUILD)/kernels >$(BUILD)/kernels.log || { cat $(BUILD)/kernels.log; exit 1; }
	@"$(CMAKE)" --build $(BUILD)/kernels --parallel $(JOBS) >$(BUILD)/kernels.log || { cat $(BUILD)/kernels.log; exit 1; }
	@touch $@

cuda: $(CUDA_LIBRARY) ## build build/libmojo_ops_cuda.so: the CUDA kernels, and the CPU's; needs neither GPU nor driver

$(CUDA_LIBRARY): FORCE $(KERNELS) | $(NVCC_STAMP)
	@$(CUDA_MAKE)
	@"$(CMAKE)" -S fused/kernels -B $(BUILD)/kernels -DMOJO_CUDA_KERNELS="$(abspath $(BUILD))/cuda/libmojo_cuda.a" \
		-DMOJO_CUDA_HOME="$(CUDA_HOME)" >$(BUILD)/cuda.log || { cat $(BUILD)/cuda.log; exit 1; }
	@"$(CMAKE)" --build $(BUILD)/kernels --target mojo_ops_cuda --parallel $(JOBS) >$(BUILD)/cuda.log || { cat $(BUILD)/cuda.log; exit 1; }
	@cmp -s $(BUILD)/kernels/libmojo_ops_cuda.so $@ || { cp -f $(BUILD)/kernels/libmojo_ops_cuda.so $@.tmp && mv -f $@.tmp $@; }

cann: $(CANN_LIBRARY) ## build build/libmojo_ops_cann.so: the kernels for onnxruntime's CANN provider, and the CPU's; needs nothing of CANN

$(CANN_LIBRARY): FORCE $(KERNELS)
	@"$(CMAKE)" --build $(BUILD)/kernels --target mojo_ops_cann --parallel $(JOBS) >$(BUILD)/cann.log || { cat $(BUILD)/cann.log; exit 1; }
	@cmp -s $(BUILD)/kernels/libmojo_ops_cann.so $@ || { cp -f $(BUILD)/kernels/libmojo_ops_cann.so $@.tmp && mv -f $@.tmp $@; }

test-cuda: $(CUDA_LIBRARY) $(VENV)/.installed ## what of the CUDA library can be tested without a GPU: its arguments, its CPU kernels
	@"$(CMAKE)" --build $(BUILD)/kernels --target mojo_cuda_backend_test --parallel $(JOBS) >$(BUILD)/cuda.log || { cat $(BUILD)/cuda.log; exit 1; }
	@for version in 16 17 18 23 24 latest; do $(BUILD)/kernels/mojo_cuda_backend_test $$version || exit 1; done
	@echo "the CPU kernels of $(CUDA_LIBRARY), through onnxruntime"
	@$(VENV)/bin/python fused/kernels/tests/ort_test.py $(CUDA_LIBRARY) --failfast

test-cann: $(CANN_LIBRARY) $(BIN) $(CANN_VENV)/.installed | $(CMAKE_STAMP) ## the stock onnxruntime for CANN on an emulation of CANN: needs neither an NPU nor CANN
	@"$(CMAKE)" -S fused/kernels -B $(BUILD)/kernels >$(BUILD)/cann.log || { cat $(BUILD)/cann.log; exit 1; }
	@"$(CMAKE)" --build $(BUILD)/kernels --target cann_emulation --parallel $(JOBS) >$(BUILD)/cann.log || { cat $(BUILD)/cann.log; exit 1; }
	@for folder in cann cann-split; do for test in $(CANN_TESTS); do \
		echo "$$test, with the libraries of $$folder"; \
		$(CANN_VENV)/bin/python fused/kernels/tests/$$test $(BUILD)/kernels/$$folder --failfast || exit 1; \
	done; done
	@fused/kernels/tests/cann.sh $(BUILD) $(BIN) $(CANN_VENV)/bin/python

test-targets: test-cann $(TARGETS_VENV)/.installed ## the bundled models patched for Ascend, QNN and OpenVINO, run by them: docs/targets/*.txt (870 MB of Python packages)
	@cp $(BUILD)/ascend.txt docs/targets/ascend.txt
	@$(TARGETS_VENV)/bin/python bench/targets/on_openvino.py $(BIN) models -o docs/targets/openvino.txt
	@$(TARGETS_VENV)/bin/python bench/targets/on_qnn.py $(BIN) models -o docs/targets/qnn.txt

gpu-test: $(CUDA_LIBRARY) cuda-programs $(BIN) ## on a machine with a GPU, and onnxruntime with its provider for $(PYTHON): all tests of the CUDA kernels
	fused/kernels/tests/gpu.sh $(BUILD) $(BIN) $(PYTHON)

gpu-zoo: $(CUDA_LIBRARY) $(BIN) ## on such a machine, ZOO=DIR: every model of DIR or DIR/models patched, against its recorded outputs
	@if [ -z "$(ZOO)" ]; then echo "usage: make gpu-zoo ZOO=DIR" >&2; exit 2; fi
	fused/kernels/tests/gpu.sh $(BUILD) $(BIN) $(PYTHON) "$(abspath $(ZOO))"

cuda-programs: | $(NVCC_STAMP) ## build/cuda/tests and build/cuda/bench: the CUDA kernels' own tests and timings, which need a GPU
	@$(CUDA_MAKE) programs

$(NVCC_WHEELS)/.installed: requirements/cuda.txt
	@echo "no nvcc on this machine: installing it into $(NVCC_WHEELS)"
	@$(PYTHON) -m pip install --disable-pip-version-check -q --upgrade --target $(NVCC_WHEELS) -r requirements/cuda.txt
	@touch $@

demo: all ## patch a bundled model, run both in onnxruntime, compare with PyTorch's outputs
	@scripts/demo.sh

smollm2: all $(FETCHED) ## load SmolLM2-135M-Instruct's weights (fetched, 98 MB), patch it, generate, compare with PyTorch's tokens (650 MB of disk)
	@ONNXRUNTIME_LIB="$$(cat $(FETCHED))" PYTHON="$(PYTHON)" scripts/smollm2.sh $(SMOLLM2)

# What the steps need is fetched and built first, side by side; then they run three at a time, since some of them wait as much as
# they work, the longest ones first.
TEST_STEPS := test-go test-kernels test-cuda test-cann test-zoo test-arm64 test-wheel test-examples test-fetch check test-docs
TEST_NEEDS := all $(FETCHED) $(NODE_TESTS)/.done $(VENV)/.installed $(VENV)/.wheel $(NVCC_STAMP) $(CANN_VENV)/.installed
test: ## everything: formatting, vet, all tests, the kernels under the sanitizers
	@$(MAKE) --no-print-directory -j3 $(TEST_NEEDS)
	@$(MAKE) --no-print-directory -j3 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) STEPS=1 $(TEST_STEPS)
	@echo "all tests passed"

# Both build in build/kernels: there one waits for the other.
ifdef STEPS
test-cann: | test-cuda
endif

# Systems that nothing here runs on; the whole tree must compile for them without a C compiler.
ELSEWHERE := darwin/arm64 windows/amd64
check: ## gofmt and go vet, here and for other systems
	@bad="$$(gofmt -l $$(find . -name '*.go' -not -path './$(BUILD)/*'))"; \
		if [ -n "$$bad" ]; then echo "not formatted as gofmt does:"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...
	$(GO) run ./internal/vet $(ELSEWHERE)

test-docs: $(BIN) ## the generated documents are what the code says
	@$(GO) run ./fused/internal/opsdoc $(BUILD)/ops.md && diff -u docs/ops.md $(BUILD)/ops.md || \
		{ echo "docs/ops.md is out of date: make docs"; exit 1; }
	@$(BIN) docs | diff -u docs/cli.md - || { echo "docs/cli.md is out of date: make docs"; exit 1; }
	@$(GO) run ./bench/targets models 2>/dev/null | diff -u docs/targets/matrix.md - || { echo "docs/targets/matrix.md is out of date: make docs"; exit 1; }

# `make check` vets the tests too, with all that go vet knows.
test-go: all $(FETCHED) $(NODE_TESTS)/.done $(VENV)/.installed ## the Go tests, those of the command line among them
	@echo "go test ./..."
	@$(TEST_ENV) $(GO) test -vet=off -timeout 10m $$($(GO) list ./... | grep -vE '/(onnx|reference)$$')
	@$(TEST_ENV) $(GO) test -vet=off -timeout 10m -v ./reference ./onnx >$(BUILD)/node-counts.log || { cat $(BUILD)/node-counts.log; exit 1; }
	@grep -E '^ok' $(BUILD)/node-counts.log
	@sed -nE 's/^.*_test\.go:[0-9]+: (node tests: [^;]*|[0-9]+ models of the ONNX node tests.*).*/\1/p' $(BUILD)/node-counts.log | \
		awk '{ print } END { if (NR != 3) { print "the ONNX node tests did not run"; exit 1 } }'

test-zoo: all $(FETCHED) ## patch the bundled models, run them in every way, and compare with PyTorch: build/zoo.md
	@echo "the bundled models, patched and run"
	@rm -f $(BUILD)/zoo.md; for d in models models/broken models/near; do \
		$(TEST_ENV) $(GO) run ./bench/zoo $$d >>$(BUILD)/zoo.md || { cat $(BUILD)/zoo.md; exit 1; }; tail -1 $(BUILD)/zoo.md; done

test-kernels: all $(VENV)/.installed ## the kernels' own tests, with the sanitizers and through onnxruntime
	PATH="$(dir $(CMAKE)):$$PATH" fused/kernels/tests/run.sh $(BUILD)/kernels $(VENV)/bin/python

test-arm64: | $(CMAKE_STAMP) ## the kernels for Linux on arm64, in an emulator
	@PATH="$(dir $(CMAKE)):$$PATH" fused/kernels/tests/arm64.sh $(BUILD)/arm64

wheel: $(WHEEL_DONE) ## build/wheel: the kernel library as a Python package

test-wheel: $(WHEEL_DONE) $(BIN) $(VENV)/.installed ## install the wheel in a fresh environment, run a patched model with it
	@echo "the wheel"
	@$(VENV)/bin/python python/tests/test_wheel.py 2>$(BUILD)/wheel-test.log || { cat $(BUILD)/wheel-test.log; exit 1; }
	@tail -3 $(BUILD)/wheel-test.log | head -1

test-examples: all $(FETCHED) $(VENV)/.installed ## the programs of docs/examples, as far as their runtimes are here
	@$(TEST_ENV) docs/examples/test.sh

test-fetch: all ## scripts/fetch-onnxruntime.sh, and the program in the library of the npm package
	@scripts/test-fetch.sh

docs: $(BIN) ## write docs/ops.md, docs/cli.md and docs/targets/matrix.md again
	$(GO) run ./fused/internal/opsdoc docs/ops.md
	$(BIN) docs >$(BUILD)/cli.md && mv $(BUILD)/cli.md docs/cli.md
	$(GO) run ./bench/targets models >$(BUILD)/matrix.md && mv $(BUILD)/matrix.md docs/targets/matrix.md

BENCH_THREADS ?= 1,2
PEERS_PYTHON ?= $(CURDIR)/$(VENV)/bin/python
BENCH_MODELS ?= models/llama-dynamo-fp32.onnx models/llama-ts-fp32.onnx
bench: all $(FETCHED) $(VENV)/.installed ## time the kernels against what they replace, and apply on large graphs
	$(VENV)/bin/python fused/kernels/bench/bench_kernels.py $(LIBRARY) --threads $(BENCH_THREADS)
	$(BIN) apply models/deepseek3-batched_mm-ts-fp32.onnx -o $(BUILD)/mixture.onnx >/dev/null
	for e in 64 128; do $(VENV)/bin/python fused/kernels/bench/bench_moe.py $(LIBRARY) --experts $$e --body $(BUILD)/mixture.onnx || exit 1; done
	$(VENV)/bin/python fused/kernels/bench/bench_moe.py $(LIBRARY) --dtype bfloat16 --tokens 1,8
	$(TEST_ENV) $(GO) run ./bench/apply -tool $(BIN) -python $(PEERS_PYTHON) $(BENCH_MODELS)

LOADS ?= 6
bench-smollm2: all $(FETCHED) $(PEERS_VENV)/.installed ## time SmolLM2 unpatched, patched by us and by others, in llama.cpp (compiled here): the tables of docs/benchmarks.md (4 GB of disk)
	@$(TEST_ENV) $(PEERS_VENV)/bin/python bench/smollm2/run.py --tool $(abspath $(BIN)) --library $(abspath $(LIBRARY)) \
		--gguf "$$(PYTHON="$(PYTHON)" scripts/fetch-smollm2.sh $(SMOLLM2))" --folder $(SMOLLM2) --loads $(LOADS) --json $(SMOLLM2)/bench.json

weights: all $(FETCHED) ## stack 6 GB of experts' weights (13 GB of disk), and open a model of 3,072 experts: memory, bytes, times
	@$(TEST_ENV) $(GO) run ./bench/weights -tool $(BIN)

zoo: all $(FETCHED) ## ZOO=DIR: patch every model of DIR or DIR/models with goldens (and truth.json), and count
	@if [ -z "$(ZOO)" ]; then echo "usage: make zoo ZOO=DIR" >&2; exit 2; fi
	$(TEST_ENV) $(GO) run ./bench/zoo "$(abspath $(ZOO))"

SPELLINGS ?= 300
spellings: ## patch SPELLINGS (300) spellings of every block, and as many changes of meaning, and print how many are fused
	$(GO) run ./bench/spellings -n $(SPELLINGS)

FUZZTIME ?= 20s
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@for file in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$(dirname $$file) || exit 1; \
		done; \
	done

KILLS ?= 200
reliability: all $(NODE_TESTS)/.done ## kill apply KILLS times (200), fill the disk, refuse outputs, apply twice: docs/reliability.md
	@MOJO_ONNX_NODE_TESTS="$(CURDIR)/$(NODE_TESTS)" $(GO) run ./bench/reliability -tool $(BIN) -kills $(KILLS) models

fetch: $(FETCHED) ## fetch onnxruntime into the user's cache folder

$(FETCHED): scripts/fetch-onnxruntime.sh
	@mkdir -p $(BUILD)
	@scripts/fetch-onnxruntime.sh >$@.tmp && mv $@.tmp $@

# pip compiles nothing; Python then compiles what the tests import, not all that there is.
PIP_INSTALL := install --disable-pip-version-check -q --no-compile
IMPORT_ONCE := -c 'import numpy, ml_dtypes, onnx.checker, onnx.reference, onnxruntime'

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)

# The stamp is older than the requirements when they change; pip then installs what is missing.
# One after the other into one environment.
$(VENV)/.installed: requirements/test.txt | $(CMAKE_STAMP) $(VENV)/bin/python
	@echo "installing requirements/test.txt into $(VENV)"
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) -r requirements/test.txt
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python $(IMPORT_ONCE)
	@touch $@

# It has no pip of its own.
$(CANN_VENV)/.installed: requirements/cann.txt | $(VENV)/bin/python
	@test -x $(CANN_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(CANN_VENV)
	@echo "installing requirements/cann.txt into $(CANN_VENV)"
	@$(VENV)/bin/python -m pip --python $(CANN_VENV)/bin/python $(PIP_INSTALL) -r requirements/cann.txt
	@PYTHONDONTWRITEBYTECODE= $(CANN_VENV)/bin/python $(IMPORT_ONCE)
	@touch $@

$(TARGETS_VENV)/.installed: requirements/targets.txt
	@test -x $(TARGETS_VENV)/bin/python || $(PYTHON) -m venv $(TARGETS_VENV)
	@echo "installing requirements/targets.txt into $(TARGETS_VENV); onnxruntime-qnn has a licence of Qualcomm's own"
	@$(TARGETS_VENV)/bin/python -m pip install --disable-pip-version-check -q -r requirements/targets.txt
	@touch $@

# Without llama.cpp the others are timed, and its error is printed.
$(PEERS_VENV)/.installed: requirements/peers.txt requirements/llama.txt | $(CMAKE_STAMP)
	@test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	@echo "installing requirements/peers.txt and, compiled for this CPU, requirements/llama.txt into $(PEERS_VENV)"
	@$(PEERS_VENV)/bin/python -m pip $(PIP_INSTALL) -r requirements/peers.txt
	@PATH="$(dir $(CMAKE)):$$PATH" $(PEERS_VENV)/bin/python -m pip $(PIP_INSTALL) -r requirements/llama.txt || \
		echo "llama.cpp cannot be compiled here (see above)" >&2
	@touch $@

$(VENV)/.cmake: requirements/build.txt | $(VENV)/bin/python
	@echo "no cmake on this machine: installing it into $(VENV)"
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) -r requirements/build.txt || \
		{ echo "cmake, which builds the kernels, cannot be installed here: install it with the system's packages" >&2; exit 1; }
	@touch $@

$(VENV)/.wheel: requirements/wheel.txt | $(VENV)/.installed
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) -r requirements/wheel.txt
	@touch $@

$(WHEEL_DONE): $(LIBRARY) $(VENV)/.wheel scripts/wheel.py $(shell find python -type f -not -name '*.pyc') LICENSE NOTICE
	@rm -f $(WHEEL)/.done-*
	@$(VENV)/bin/python scripts/wheel.py $(LIBRARY) $(WHEEL)
	@touch $@

$(NODE_TESTS)/.done: scripts/onnx-node-tests.py | $(VENV)/.installed
	@echo "writing the node tests of the ONNX standard to $(NODE_TESTS)"
	@$(VENV)/bin/python scripts/onnx-node-tests.py $(NODE_TESTS) >$(BUILD)/node-tests.log 2>&1 || \
		{ tail -20 $(BUILD)/node-tests.log; exit 1; }
	@touch $@

clean: ## remove what was built; the Python environment stays
	rm -rf $(BIN) $(BUILD)/kernels $(BUILD)/arm64 $(BUILD)/cuda $(BUILD)/patched $(BUILD)/patched-npu $(LIBRARY) $(CUDA_LIBRARY) $(CANN_LIBRARY) $(WHEEL) $(NODE_TESTS) $(FETCHED) $(BUILD)/demo $(BUILD)/examples $(BUILD)/test-fetch $(BUILD)/*.log $(BUILD)/*.md

distclean: ## remove build/ with everything in it
	rm -rf $(BUILD)
