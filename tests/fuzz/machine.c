/* links: base placement */
/* seeds: examples/machines */
/* seconds: 8 */
/* The file of a machine: what ferry writes of it reads back as the same. */
#include "tests/fuzz/fuzz.h"

#include "base/file.h"
#include "placement/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const char *path = fuzz_file("machine.yaml", data, len);
	char *one = NULL, *other = NULL;
	struct machine *machine = NULL;
	size_t one_bytes = 0, other_bytes = 0;
	int err = machine_read(&machine, path);

	if (err) {
		fuzz_refused(err);
		fuzz_require(!machine);
		return 0;
	}
	fuzz_require(!machine_write(machine, "fuzz", path));
	fuzz_require(!file_read_all(path, 1 << 24, &one, &one_bytes));
	machine_free(machine);
	machine = NULL;
	err = machine_read(&machine, path);
	if (err) {
		fprintf(stderr, "%s\n%s\n", err_text(), one);
		abort();
	}
	fuzz_require(!machine_write(machine, "fuzz", path));
	fuzz_require(!file_read_all(path, 1 << 24, &other, &other_bytes));
	if (one_bytes != other_bytes || memcmp(one, other, one_bytes)) {
		fprintf(stderr, "%s\n---- read back ----\n%s\n", one, other);
		abort();
	}
	mem_free(one);
	mem_free(other);
	machine_free(machine);
	return 0;
}
