# Thin wrappers around CMake. BUILD=DIR names another build directory, PREFIX and DESTDIR where to install.
BUILD ?= build
PREFIX ?= /usr/local

.PHONY: all test demo bench bundle format install clean

all:
	@sh scripts/deps.sh build
	@test -f $(BUILD)/build.ninja || cmake -S . -B $(BUILD) -G Ninja
	@cmake --build $(BUILD) --target ferry

# Everything: the tests in the usual build, again under ASan and UBSan, those with threads under TSan, the
# format of the sources.
test:
	@sh scripts/deps.sh test
	@cmake -S . -B $(BUILD) -G Ninja -DFERRY_ALL_CHECKS=ON
	@cmake --build $(BUILD)
	@sh scripts/run_tests.sh $(BUILD)

demo: all
	@FERRY=$(abspath $(BUILD))/ferry sh scripts/demo.sh

# make bench NAME=...; without a name, what there is
NAME ?= list
bench: all
	@$(BUILD)/ferry bench $(NAME)

# For a machine with a GPU: build/ferry-bundle.tar.xz, to be unpacked there. Needs nvcc and takes a while.
bundle:
	@sh scripts/deps.sh build
	@sh scripts/bundle.sh

format:
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@cmake -E rm -rf $(BUILD)
