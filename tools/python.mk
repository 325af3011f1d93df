# The Python environments in build/, cmake, onnxruntime's library in the user's cache folder, and the wheel.

# logged NAME,COMMAND keeps what the command prints in build/NAME.log, and shows it where the command fails.
logged = { $(2); } >$(BUILD)/$(1).log 2>&1 || { cat $(BUILD)/$(1).log; exit 1; }

VENV := $(BUILD)/venv
REQUIREMENTS := tools/requirements
# pip compiles nothing; Python then compiles what the tests import, not all that there is.
PIP_INSTALL := install --disable-pip-version-check -q --no-compile
IMPORT_ONCE := -c 'import numpy, ml_dtypes, onnx.checker, onnx.reference, onnxruntime'

# The cmake of the system, or else the one that pip installs into build/venv.
CMAKE := $(shell command -v cmake 2>/dev/null || echo $(CURDIR)/$(VENV)/bin/cmake)
CMAKE_STAMP := $(if $(findstring $(VENV),$(CMAKE)),$(VENV)/.cmake)

# A newer pip than Python brings takes half of the time to find a version among thousands of files, and installing it
# takes half of the time of Python's own.
$(VENV)/bin/python: | $(REQUIREMENTS)/pip.txt
	@{ $(PYTHON) -m venv --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(VENV)/bin/python $(PIP_INSTALL) -r $(REQUIREMENTS)/pip.txt; } 2>/dev/null && \
		$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)

# A stamp is older than its requirements when they change; pip then installs what is missing. pip runs once at a time in
# one environment, so each stamp of build/venv waits for the one before it.
$(VENV)/.cmake: $(REQUIREMENTS)/build.txt | $(VENV)/bin/python
	@echo "no cmake on this machine: installing it into $(VENV)"
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) -r $< || \
		{ echo "cmake, which builds the kernels, cannot be installed here: install the system's package" >&2; exit 1; }
	@touch $@

$(VENV)/.check: $(REQUIREMENTS)/check.txt | $(CMAKE_STAMP) $(VENV)/bin/python
	@echo "installing $< into $(VENV)"
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) -r $<
	@touch $@

$(VENV)/.installed: $(REQUIREMENTS)/test.txt $(REQUIREMENTS)/triton.txt | $(VENV)/.check
	@echo "installing $< into $(VENV)"
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) -r $<
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) --no-deps -r $(REQUIREMENTS)/triton.txt
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python $(IMPORT_ONCE)
	@touch $@

$(VENV)/.wheel: $(REQUIREMENTS)/wheel.txt | $(VENV)/.installed
	@$(VENV)/bin/python -m pip $(PIP_INSTALL) -r $<
	@touch $@

# ray has wheels for some systems and Pythons alone: without it, its tests are passed over.
RAY_VENV := $(BUILD)/ray-venv
RAY_SOAK ?= --clients 20 --seconds 6 --max-tokens 100
$(RAY_VENV)/.installed: $(REQUIREMENTS)/ray.txt | $(VENV)/.installed
	@test -x $(RAY_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(RAY_VENV)
	@echo "installing $< into $(RAY_VENV)"
	@$(VENV)/bin/python -m pip --python $(RAY_VENV)/bin/python $(PIP_INSTALL) --no-deps -r $< || \
		echo "ray cannot be installed here (see above)" >&2
	@touch $@

# MPICH and Open MPI, which have files of the same names. They are not imported: no package needs them.
MPI := $(BUILD)/mpi
$(MPI)/%/.installed: $(REQUIREMENTS)/%.txt | $(VENV)/.installed
	@echo "installing $< into $(@D)"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	@$(VENV)/bin/python -m pip --python $(@D)/bin/python $(PIP_INSTALL) --no-deps -r $<
	@touch $@

# The onnxruntime that `make fetch` puts into the user's cache folder.
FETCHED := $(BUILD)/.onnxruntime
$(FETCHED): tools/fetch-onnxruntime.sh
	@mkdir -p $(BUILD)
	@tools/fetch-onnxruntime.sh >$@.tmp && mv $@.tmp $@

NODE_TESTS := $(BUILD)/onnx-node-tests
$(NODE_TESTS)/.done: tools/onnx-node-tests.py | $(VENV)/.installed
	@echo "writing the node tests of the ONNX standard to $(NODE_TESTS)"
	@$(VENV)/bin/python $< $(NODE_TESTS) >$(BUILD)/node-tests.log 2>&1 || { tail -20 $(BUILD)/node-tests.log; exit 1; }
	@touch $@

# The C compiler of programs for other machines: Zig's brings the symbols of every glibc, so that a program built here
# starts on systems as old as GLIBC. (The kernel library that GCC makes needs no newer one; test_wheel.py looks.)
ZIG := $(BUILD)/zig/bin/python -m ziglang
GLIBC := 2.28
$(BUILD)/zig/.installed: $(REQUIREMENTS)/zig.txt | $(VENV)/bin/python
	@echo "installing $< into $(BUILD)/zig"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	@$(VENV)/bin/python -m pip --python $(@D)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

MACHINE := $(shell uname -m)
WHEEL := $(BUILD)/wheel
WHEEL_BIN := $(BUILD)/release/bin/mojo-patch
ifeq ($(shell uname -s),Linux)
WHEEL_PLATFORM := manylinux_$(subst .,_,$(GLIBC))_$(MACHINE)
WHEEL_CC := CC="$(CURDIR)/$(ZIG) cc -target $(MACHINE)-linux-gnu.$(GLIBC)"
$(WHEEL_BIN): $(BUILD)/zig/.installed
endif

# The program that others are given: without what TAGS=crosscheck links, without symbols, and without an id, into which
# the path of the compiler would go. (The linker strips what Zig adds, which holds that path as well.)
GIVEN := -ldflags "-s -w -buildid= -extldflags=-s -X main.version=$(VERSION)"
$(WHEEL_BIN): $(GO_FILES)
	@echo "building the program of the wheel"
	@mkdir -p $(@D)
	@$(WHEEL_CC) CGO_ENABLED=1 $(GO_BUILD) $(GIVEN) -o $@ ./cmd/mojo-patch

# The licenses of the Go modules that the program links, as their authors wrote them.
MODULE_LICENSES := $(BUILD)/release/THIRD_PARTY-LICENSES
$(MODULE_LICENSES): go.mod go.sum tools/licenses.sh
	@mkdir -p $(@D)
	@GO="$(GO)" tools/licenses.sh >$@.tmp && mv $@.tmp $@

WHEEL_DONE := $(WHEEL)/.done-$(VERSION)
$(WHEEL_DONE): $(LIBRARY) $(WHEEL_BIN) $(MODULE_LICENSES) LICENSE NOTICE THIRD_PARTY.md \
		$(shell find python -type f -not -name '*.pyc')
	@rm -f $(WHEEL)/.done-* $(WHEEL)/*.whl
	@$(PYTHON) python/backend.py $(WHEEL) --program $(WHEEL_BIN) --library $(LIBRARY) \
		--licenses $(MODULE_LICENSES) $(addprefix --platform ,$(WHEEL_PLATFORM))
	@touch $@
